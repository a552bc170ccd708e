"""A replay without a model is the recording, decision by decision."""

from __future__ import annotations

import pytest

from engine.errors import ForkError
from engine.policies import POLICIES
from engine.records import Cause, Iteration
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from engine.whatif import FittedCosts, Journal, fork, replay
from tests.engine.harness import submit_all, tiny_engine
from tests.engine.whatif.recordings import record, refusal, requests, timed_engine, wild_recording

SAME = (
    "step",
    "t_start",
    "t_end",
    "budget",
    "knobs",
    "arrived",
    "scheduled",
    "preempted",
    "running",
    "waiting",
    "num_waiting",
    "swapped",
    "blocked",
    "unscheduled",
    "limit",
    "free_blocks_mid",
    "free_blocks",
    "off_blocks",
    "free_cpu_blocks",
    "blocks",
    "slots",
    "prefix",
    "knob_version",
    "paused",
    "pace",
)


def check_same(recorded: list[Iteration], replayed: list[Iteration]) -> None:
    """Field by field; records of notices, refusals and plans alone have no counterpart.

    Not `batch`: a static batch may forget ended members in a call of the scheduler that leaves no record.
    """
    by_seq = {it.seq: it for it in replayed}
    assert len(by_seq) == len(replayed)
    for it in recorded:
        again = by_seq.pop(it.seq, None)
        if again is None:
            assert not (it.scheduled or it.preempted or it.arrived or it.knobs or it.finished)
            continue
        for name in SAME:
            assert getattr(again, name) == getattr(it, name), (it.seq, name)
        assert [(t.id, t.token_id) for t in again.tokens] == [(t.id, t.token_id) for t in it.tokens], it.seq
        assert [done._replace(tail="") for done in again.finished] == [done._replace(tail="") for done in it.finished]
    assert not by_seq


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("caching", [True, False])
def test_replay_of_wild_runs(seed: int, caching: bool) -> None:
    journal, records = wild_recording(seed, enable_prefix_caching=caching)
    check_same(records, list(replay(journal)))


def test_the_wild_runs_have_everything() -> None:
    runs = [wild_recording(seed)[1] for seed in range(12)]
    records = [it for run in runs for it in run]
    assert {victim.cause for it in records for victim in it.preempted} >= {Cause.BLOCKS}
    assert any(it.copied.in_blocks for it in records) and any(it.batch for it in records)
    assert any(it.off_blocks for it in records) and any(it.paused for it in records)
    assert {change.name for it in records for change in it.knobs} >= {"batching", "policy", "num_blocks", "victim"}


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("batching", ["continuous", "static"])
def test_replay_of_a_pool_that_shrinks_and_grows(mode: str, batching: str) -> None:
    engine, clock = timed_engine(
        num_blocks=40, block_size=4, max_num_seqs=6, preemption_mode=mode, batching=batching, num_cpu_blocks=100
    )
    for request in requests(20):
        engine.submit(request)

    def before(step: int) -> None:
        if step % 5 == 0:
            engine.set_knob("num_blocks", 40 if step % 10 else 17)

    journal, records = record(engine, clock, before)
    assert any(victim.cause is Cause.SHRINK for it in records for victim in it.preempted)
    assert any(it.copied.out_blocks for it in records) == (mode == "swap")
    check_same(records, list(replay(journal)))


@pytest.mark.parametrize("policy", POLICIES)
def test_replay_of_a_run_that_goes_on(policy: str) -> None:
    journal, records = wild_recording(3, most=150, policy=policy)
    assert any(life.reason is None for life in journal.lives)
    check_same(records, list(replay(journal)))


def test_all_kinds_of_ends_are_there() -> None:
    journals = [wild_recording(seed)[0] for seed in range(4)]
    reasons = {life.reason for journal in journals for life in journal.lives}
    assert reasons == {FinishReason.LENGTH, FinishReason.STOP, FinishReason.ABORT, FinishReason.ERROR}


def test_replay_of_the_real_model() -> None:
    engine = tiny_engine(num_blocks=24, block_size=4, max_num_seqs=4, max_num_batched_tokens=32)
    submit_all(engine, [[(7 * i + j) % 256 for j in range(5 + 3 * i)] for i in range(8)], SamplingParams(max_tokens=24))
    journal, records = Journal(engine.config), []
    while engine.has_work():
        it = engine.step()
        assert it is not None
        journal.add(it)
        records.append(it)
    assert sum(len(it.preempted) for it in records) > 0
    check_same(records, list(replay(journal)))


def test_a_schedule_that_cannot_be_repeated_is_named() -> None:
    engine, clock = timed_engine()
    for request in requests(5):
        engine.submit(request)
    journal, records = record(engine, clock)
    at = next(it for it in records if it.step == 7)
    journal.sums[at.seq] += 1
    text = refusal(ForkError, lambda: list(replay(journal)))
    assert "iteration 7" in text


def test_stop_string_at_the_last_token() -> None:
    engine, clock = timed_engine()
    engine.submit(Request("r", [1, 2, 3], SamplingParams(max_tokens=5, stop=("never",))))
    journal, records = record(engine, clock)
    assert journal.lives[0].reason is FinishReason.LENGTH
    check_same(records, list(replay(journal)))


def test_journal_refuses_gaps() -> None:
    engine, clock = timed_engine()
    for request in requests(5):
        engine.submit(request)
    _, records = record(engine, clock)
    late = Journal(engine.config)
    for it in records[3:]:
        late.add(it)
    assert late.truncated
    assert "record 3" in refusal(ForkError, lambda: fork(late, 0, {}))
    holed = Journal(engine.config)
    for it in (*records[:5], *records[6:]):
        holed.add(it)
    assert holed.truncated
    assert "record 5 is missing" in refusal(ForkError, lambda: list(replay(holed)))


def test_a_copy_does_not_grow() -> None:
    engine, clock = timed_engine()
    for request in requests(5):
        engine.submit(request)
    journal, records = record(engine, clock, most=6)
    frozen = journal.copy()
    tokens = [list(life.tokens) for life in frozen.lives]
    while engine.has_work():
        it = engine.step()
        if it is None:
            clock.advance(0.01)
            continue
        journal.add(it)
        records.append(it)
    assert frozen.num_records == 6 and [list(life.tokens) for life in frozen.lives] == tokens
    check_same(records[:6], list(replay(frozen)))
    check_same(records, list(replay(journal)))
    assert FittedCosts.fit(journal).samples > 0
