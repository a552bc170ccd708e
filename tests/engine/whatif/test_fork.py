"""Forks without a model: what stays as recorded, what changes, and what cannot be asked."""

from __future__ import annotations

from typing import Any

import pytest

from engine.engine import Engine
from engine.errors import ConfigError, ForkError
from engine.policies import POLICIES
from engine.records import Iteration, Kind
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.view import EngineView
from engine.whatif import ForkPoint, Future, Journal, compare, fork
from engine.whatif.fork import _Branch as Branch
from tests.engine.whatif.recordings import record, refusal, requests, timed_engine, wild_recording

TIGHT: dict[str, Any] = {"num_blocks": 24, "block_size": 4, "max_num_seqs": 6, "max_num_batched_tokens": 48}


CHANGES: list[dict[str, Any]] = [
    {},
    {"max_num_seqs": 1},
    {"max_num_seqs": 3, "max_num_batched_tokens": 8},
    {"policy": "priority"},
    {"num_blocks": 14},
    {"preemption_mode": "swap", "victim": "largest"},
    {"batching": "static"},
    {"batching": "continuous", "reserve_output": True},
    {"client_token_budget": 8},
]


def recording(
    count: int = 20, every: float = 0.0, most: int | None = None, **asked: Any
) -> tuple[Journal, list[Iteration]]:
    engine, clock = timed_engine(**{**TIGHT, **asked})
    for request in requests(count, every=every):
        engine.submit(request)
    return record(engine, clock, most=most)


def tokens_of(records: tuple[Iteration, ...] | list[Iteration]) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    for it in records:
        for token in it.tokens:
            tokens.setdefault(token.id, []).append(token.token_id)
    return tokens


def decisions(records: tuple[Iteration, ...] | list[Iteration]) -> list[Any]:
    return [(it.step, it.scheduled, it.preempted, it.running, it.waiting, it.free_blocks) for it in records]


def preempted(future: Future) -> int:
    return sum(len(it.preempted) for it in future.records)


@pytest.mark.parametrize("at", [0, 1, 7, 50])
def test_the_baseline_decides_as_recorded(at: int) -> None:
    """All requests are there from the start, so modelled times change nothing."""
    journal, records = recording()
    future = fork(journal, at, {})
    assert decisions(future.records) == decisions([it for it in records if it.step > at])
    assert future.complete and not future.assumed
    assert future.costs is not None and future.costs.forward_share == pytest.approx(0.75)
    assert future.records[0].seq == journal.prefix(at)
    assert future.records[-1].t_end == pytest.approx(records[-1].t_end, rel=0.03)


def test_arrivals_over_time() -> None:
    journal, records = recording(30, every=0.02)
    future = fork(journal, 20, {})
    assert tokens_of(future.records) == tokens_of([it for it in records if it.step > 20])
    assert future.records[-1].t_end == pytest.approx(records[-1].t_end, rel=0.03)
    for it in future.records:
        assert all(new.arrival <= it.t_start for new in it.arrived)


def test_the_records_are_an_engines_records() -> None:
    """A view of the recording up to the fork goes on with the future."""
    journal, records = recording()
    view = EngineView(journal.config.num_blocks, journal.config.block_size, journal.config.values())
    for it in records[: journal.prefix(25)]:
        view.apply(it)
    future = fork(journal, 25, {"max_num_seqs": 3})
    for it in future.records:
        view.apply(it)
    assert view.knobs["max_num_seqs"] == 3 and view.free_blocks == 23
    assert sum(view.finished.values()) == 20 and not view.live()


def test_a_bigger_pool_preempts_less_and_says_the_same() -> None:
    journal, records = recording()
    point = ForkPoint(journal, 0)
    bigger = point.future({"num_blocks": 200})
    assert preempted(point.baseline) > 5 and preempted(bigger) == 0
    assert tokens_of(bigger.records) == tokens_of(records)
    assert bigger.records[-1].t_end < point.baseline.records[-1].t_end
    assert bigger.config.num_blocks == 200


def test_one_at_a_time() -> None:
    journal, records = recording()
    future = fork(journal, 0, {"max_num_seqs": "1"})
    assert all(len(it.running) <= 1 for it in future.records)
    assert tokens_of(future.records) == tokens_of(records)
    late = fork(journal, 30, {"max_num_seqs": 1})
    assert late.records[0].knobs and {len(it.running) for it in late.records[-20:]} <= {0, 1}


def test_several_futures_of_one_point_are_independent() -> None:
    journal, _ = recording()
    point = ForkPoint(journal, 12)
    first = point.future({"max_num_seqs": 2})
    assert point.future({"policy": "priority", "max_num_batched_tokens": 16}).records
    assert point.future({"max_num_seqs": 2}).records == first.records
    assert point.baseline.records == fork(journal, 12, {}).records
    assert point.baseline is point.baseline


@pytest.mark.parametrize("seed", range(3))
def test_forks_of_wild_runs_end(seed: int) -> None:
    journal, _ = wild_recording(seed)
    ids = {life.arrived.id for life in journal.lives}
    for at in (0, journal.steps // 3, journal.steps):
        point = ForkPoint(journal, at)
        for changes in CHANGES:
            future = point.future(changes)
            assert future.complete, future.notes
            assert {done.id for it in future.records for done in it.finished} <= ids
            assert compare(point.baseline, future).rows is not None


@pytest.mark.parametrize("policy", POLICIES)
def test_a_copied_prefix_is_a_repeated_one(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = wild_recording(5, most=200, policy=policy)
    changes = {"max_num_seqs": 3}
    point = ForkPoint(journal, journal.steps // 2)
    copied = point.future(changes), point.future(changes)
    monkeypatch.setattr(Branch, "split", None)
    monkeypatch.setattr(type(point._trunk.engine.scheduler.policy), "__module__", "elsewhere")
    assert point.future(changes).records == copied[0].records == copied[1].records


def test_requests_that_had_not_ended_go_on_to_their_limit() -> None:
    journal, records = recording(most=40)
    live = {life.arrived.id: life for life in journal.lives if life.reason is None}
    future = fork(journal, journal.steps, {})
    done = {item.id: item for it in future.records for item in it.finished}
    assert live and done.keys() == live.keys() == future.assumed
    for id, life in live.items():
        assert done[id].reason is FinishReason.LENGTH and done[id].output_len == life.arrived.max_tokens
    assert "placeholders" in future.notes[-1]
    assert future.start == pytest.approx(records[-1].t_end)


def test_an_expected_end_is_taken() -> None:
    engine, clock = timed_engine()
    engine.submit(Request("r", [1, 2, 3], SamplingParams(max_tokens=50), expected_output=9))
    journal, _ = record(engine, clock, most=4)
    future = fork(journal, 2, {})
    assert [(item.reason, item.output_len) for it in future.records for item in it.finished] == [(FinishReason.STOP, 9)]
    assert future.assumed == {"r"}


def test_stops_and_bad_logits_end_where_they_did() -> None:
    def tokens(id: str, position: int) -> int:
        return {"stop": 257, "bad": -1}.get(id, 65) if position > 20 else 65

    engine, clock = timed_engine()
    engine.executor.tokens = tokens  # type: ignore[attr-defined]
    for id in ("stop", "bad", "long"):
        engine.submit(Request(id, [1, 2, 3, 4], SamplingParams(max_tokens=40)))
    journal, records = record(engine, clock)
    recorded = {done.id: (done.reason, done.output_len, done.detail) for it in records for done in it.finished}
    future = fork(journal, 3, {"max_num_seqs": 1})
    assert {d.id: (d.reason, d.output_len, d.detail) for it in future.records for d in it.finished} == recorded
    assert {reason for reason, _, _ in recorded.values()} == {
        FinishReason.STOP,
        FinishReason.ERROR,
        FinishReason.LENGTH,
    }


def driven(before: Any) -> tuple[Journal, list[Iteration]]:
    engine, clock = timed_engine(**TIGHT)
    for request in requests(12):
        engine.submit(request)
    return record(engine, clock, lambda step: before(engine, step))


def test_later_knob_changes_are_made_again_unless_forked() -> None:
    def before(engine: Engine, step: int) -> None:
        if step == 30:
            engine.set_knob("max_num_seqs", 2)
        if step == 35:
            engine.set_knob("watermark", 0.1)

    journal, records = driven(before)
    baseline = fork(journal, 10, {})
    assert [change.name for it in baseline.records for change in it.knobs] == ["max_num_seqs", "watermark"]
    other = fork(journal, 10, {"max_num_seqs": 4})
    assert [change.new for it in other.records for change in it.knobs if change.name == "max_num_seqs"] == [4]
    assert any(change.name == "watermark" for it in other.records for change in it.knobs)
    assert len(records) > 35


def test_aborts_come_at_their_time() -> None:
    def before(engine: Engine, step: int) -> None:
        if step == 20:
            engine.abort("r0", "client left")
            engine.abort("r9", "client left")

    journal, records = driven(before)
    when = next(it.t_start for it in records if any(done.reason is FinishReason.ABORT for done in it.finished))
    future = fork(journal, 5, {"max_num_seqs": 2})
    gone = [it for it in future.records if any(done.reason is FinishReason.ABORT for done in it.finished)]
    assert gone and gone[0].t_start >= when
    assert gone[0].finished[0].detail == "client left"


def test_a_horizon_cuts() -> None:
    journal, _ = recording()
    future = fork(journal, 5, {}, horizon=10)
    assert sum(it.executed for it in future.records) == 10 and not future.complete
    assert not fork(journal, 5, {}, horizon=0).records


def test_before_tells_who_was_there() -> None:
    journal, records = recording(every=0.01)
    future = fork(journal, 30, {})
    view = EngineView(journal.config.num_blocks, journal.config.block_size, journal.config.values())
    for it in records[: journal.prefix(30)]:
        view.apply(it)
    live = {request.id: request for request in view.live()}
    assert {row.id for row in future.before} == live.keys() and live
    for row in future.before:
        seen = live[row.id]
        assert row.first_token == (seen.token_times[0] if seen.token_times else None)
        assert row.last_token == (seen.token_times[-1] if seen.token_times else None)
        assert (row.preemptions, row.recomputed_tokens) == (seen.preemptions, seen.recomputed_tokens)
        assert (row.output_len, row.prompt_len) == (seen.output_len, seen.prompt_len)


def test_two_knobs_that_are_legal_only_together() -> None:
    journal, _ = recording()
    future = fork(journal, 10, {"max_num_seqs": 64, "max_num_batched_tokens": 64})
    assert (future.config.max_num_seqs, future.config.max_num_batched_tokens) == (64, 64)
    less = fork(journal, 10, {"max_num_batched_tokens": 4, "max_num_seqs": 2})
    assert (less.config.max_num_seqs, less.config.max_num_batched_tokens) == (2, 4)


def test_knobs_of_the_whole_run() -> None:
    journal, records = recording()
    point = ForkPoint(journal, 0)
    small = point.future({"block_size": 2, "max_num_seqs": 3})
    assert small.config.block_size == 2 and small.config.max_num_seqs == 3
    assert small.config.max_model_len == 46 and "max_model_len 46" in small.notes[0]
    assert any(it.rejected for it in small.records)
    view = EngineView(small.config.num_blocks, small.config.block_size, small.config.values())
    for it in small.records:
        view.apply(it)
    assert not view.live()
    cached = point.future({"enable_prefix_caching": False})
    assert tokens_of(cached.records) == tokens_of(records)
    assert any(item.kind is Kind.RESUMED for it in cached.records for item in it.scheduled)


def test_refusals_are_one_clear_line() -> None:
    journal, _ = recording()
    steps = journal.steps
    assert f"0 to {steps}" in refusal(ForkError, lambda: fork(journal, steps + 1, {}))
    assert "-1" in refusal(ForkError, lambda: fork(journal, -1, {}))
    assert "no such knob" in refusal(ConfigError, lambda: fork(journal, 3, {"nonsense": 1}))
    assert "out of range" in refusal(ConfigError, lambda: fork(journal, 3, {"max_num_seqs": 0}))
    assert "iteration 0" in refusal(ConfigError, lambda: fork(journal, 3, {"block_size": 8}))
    assert "iteration 0" in refusal(ConfigError, lambda: fork(journal, 3, {"num_blocks": 25}))
    assert "below max_num_seqs" in refusal(ConfigError, lambda: fork(journal, 3, {"max_num_batched_tokens": 2}))
    assert fork(journal, 3, {"block_size": 4, "num_blocks": 24}).records


def test_an_empty_journal_has_an_empty_future() -> None:
    engine, _ = timed_engine()
    future = fork(Journal(engine.config), 0, {})
    assert future.records == () and future.complete and future.start == 0.0


def test_pauses_are_not_repeated_after_the_fork() -> None:
    engine, clock = timed_engine(**TIGHT)
    for request in requests(8):
        engine.submit(request)
    journal = Journal(engine.config)
    while engine.has_work():
        if engine.step_count == 20 and not engine.paused:
            engine.paused = True
            it = engine.step(run=False)
            assert it is not None
            journal.add(it)
            clock.advance(60.0)
            engine.paused = False
        it = engine.step()
        assert it is not None
        journal.add(it)
    before = fork(journal, 10, {})
    assert before.records[-1].t_end < 60 and not any(it.paused for it in before.records)
    assert fork(journal, 20, {}).start > 60


def test_a_later_change_that_is_not_possible_here_is_told() -> None:
    def before(engine: Engine, step: int) -> None:
        if step == 20:
            engine.set_knob("max_num_seqs", 16)

    journal, _ = driven(before)
    point = ForkPoint(journal, 5)
    future = point.future({"max_num_seqs": 6, "max_num_batched_tokens": 8})
    assert not any("refused" in note for note in future.notes), "the knob that was forked is not changed again"
    future = point.future({"max_num_batched_tokens": 8})
    told = [note for note in future.notes if "refused" in note]
    assert len(told) == 1 and told[0].startswith("max_num_seqs=16, as recorded at ") and "below" in told[0]
    assert future.complete and any("refused" in notice for it in future.records for notice in it.notices)
    assert f"B: {told[0]}" in compare(point.baseline, future).notes
    assert not any("refused" in note for note in point.baseline.notes)


def test_swapping_that_was_never_measured_is_assumed_and_told() -> None:
    journal, _ = recording()
    point = ForkPoint(journal, 0)
    swapping = point.future({"preemption_mode": "swap"})
    copies = [it for it in swapping.records if it.copied.out_blocks or it.copied.in_blocks]
    assert copies and all(it.timings.swap > 0 for it in copies)
    a_block = 4 * 0.2 * point.costs.token
    first = copies[0].copied
    assert copies[0].timings.swap == pytest.approx((first.out_blocks + first.in_blocks) * a_block)
    assert any(note.startswith("never measured: swap assumed at ") for note in swapping.notes)
    assert not any("never measured" in note for note in point.baseline.notes), "nothing was swapped"
    measured, _ = recording(preemption_mode="swap")
    assert not any("never measured" in note for note in fork(measured, 0, {}).notes)


def test_placeholders_are_no_prefix_hits_of_each_other() -> None:
    engine, clock = timed_engine(num_blocks=60, block_size=4, max_num_seqs=2)
    for index in range(6):
        engine.submit(Request(f"r{index}", [1, 2, 3, 4, 5], SamplingParams(max_tokens=30), client=str(index)))
    journal, _ = record(engine, clock, most=3)
    future = fork(journal, 3, {})
    assert len(future.assumed) == 6
    first = [item for it in future.records for item in it.scheduled if item.kind is Kind.NEW]
    assert first and all(item.computed_before == 4 for item in first), "the prompt's full block, no more"
    said = tokens_of(future.records)
    assert len({tuple(tokens) for tokens in said.values()}) == 6
    assert all(0 <= token < 256 for tokens in said.values() for token in tokens)
    assert fork(journal, 3, {}).records == future.records
    # Preempted ones find their own again, and theirs only.
    tight = fork(journal, 3, {"num_blocks": 10})
    resumed = [item for it in tight.records for item in it.scheduled if item.kind is Kind.RESUMED]
    assert resumed and tokens_of(tight.records) == {id: said[id] for id in tokens_of(tight.records)}
