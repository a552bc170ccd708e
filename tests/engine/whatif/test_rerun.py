"""A fork for real: the model computes again, and says the same under any schedule."""

from __future__ import annotations

import random
from typing import Any

import pytest

from engine.build import build_engine
from engine.clock import Clock
from engine.engine import Engine
from engine.errors import ConfigError, ForkError
from engine.knobs import KnobValue
from engine.policies import POLICIES
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.whatif import Journal, Rerun, compare, fork, rerun
from tests.engine.fakes import fake_engine
from tests.engine.harness import tiny_engine
from tests.engine.whatif.recordings import linear, record, refusal, timed_engine
from tests.engine.whatif.test_fork import recording, tokens_of
from tests.engine.whatif.test_replay import SAME, check_same


def tiny(values: dict[str, KnobValue], clock: Clock) -> Engine:
    return build_engine(None, dict(values), model_name="tiny", clock=clock).engine


@pytest.fixture(scope="module")
def tiny_recording() -> tuple[Journal, list[Iteration]]:
    engine = tiny_engine(num_blocks=24, block_size=4, max_num_seqs=4, max_num_batched_tokens=32)
    for i in range(10):
        engine.submit(
            Request(
                f"r{i}",
                [(7 * i + j) % 256 for j in range(5 + 3 * (i % 5))],
                SamplingParams(max_tokens=24, temperature=0.8 if i % 2 else 0.0),
                arrival=0.005 * i,
            )
        )
    journal, records = Journal(engine.config), []
    while engine.has_work():
        it = engine.step()
        if it is not None:
            journal.add(it)
            records.append(it)
    return journal, records


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_num_seqs": 1},
        {"max_num_batched_tokens": 7},
        {"num_blocks": 16},
        {"policy": "priority", "enable_chunked_prefill": True},
    ],
)
def test_the_model_says_the_same(tiny_recording: tuple[Journal, list[Iteration]], changes: dict[str, Any]) -> None:
    journal, records = tiny_recording
    again = rerun(journal, tiny, journal.steps // 3, changes)
    got = list(again)
    assert tokens_of(got) == tokens_of(records)
    prefix = [it for it in got if it.step <= journal.steps // 3]
    by_seq = {it.seq: it for it in records}
    for it in prefix:
        for name in SAME:
            assert getattr(it, name) == getattr(by_seq[it.seq], name), (it.seq, name)
    assert again.future.complete and again.future.costs is None


def test_other_blocks_from_the_start(tiny_recording: tuple[Journal, list[Iteration]]) -> None:
    journal, records = tiny_recording
    again = rerun(journal, tiny, 0, {"num_blocks": 120, "block_size": 8})
    assert tokens_of(list(again)) == tokens_of(records)
    assert again.future.config.num_blocks == 120
    result = compare(fork(journal, 0, {}), again.future)
    assert result.totals_a.preemptions > 0 == result.totals_b.preemptions
    assert {row.b.output_tokens for row in result.rows} == {24}


def test_a_rerun_agrees_with_the_fork() -> None:
    """On a model that repeats itself, what the fork foretold is what happens."""
    journal, _ = recording()
    factory = lambda values, clock: fake_engine(clock, **values)[0]  # noqa: E731
    foretold = fork(journal, 20, {"max_num_seqs": 3})
    again = Rerun(journal, factory, 20, {"max_num_seqs": 3})
    happened = [it for it in again if it.step > 20]
    assert [(it.scheduled, it.preempted) for it in happened] == [
        (it.scheduled, it.preempted) for it in foretold.records
    ]


def test_a_model_that_says_something_else_is_noticed() -> None:
    journal, _ = recording()

    def tokens(id: str, position: int) -> int:
        return 257

    again = rerun(journal, lambda values, clock: fake_engine(clock, tokens, **values)[0], 20, {})
    assert "cannot be repeated" in refusal(ForkError, lambda: list(again))
    assert "not been run" in refusal(ForkError, lambda: again.future)


def test_refusals() -> None:
    journal, _ = recording()
    assert "no iteration" in refusal(ForkError, lambda: rerun(journal, tiny, 10**6, {}))
    assert "iteration 0" in refusal(ConfigError, lambda: rerun(journal, tiny, 5, {"block_size": 8}))


@pytest.mark.parametrize("policy", POLICIES)
def test_policies_that_look_at_times_see_the_recorded_ones(policy: str) -> None:
    """The machine is another one, and an iteration takes no time on a fake model: the prefix is as recorded."""
    rng = random.Random(3)
    engine, clock = timed_engine(
        num_blocks=80, block_size=4, max_num_seqs=3, max_num_batched_tokens=32, policy=policy, requests_per_minute=4
    )
    for index in range(40):
        engine.submit(
            Request(
                f"r{index}",
                [rng.randrange(200) for _ in range(rng.randrange(2, 80))],
                SamplingParams(max_tokens=rng.randrange(2, 20), ignore_eos=True),
                arrival=index * 0.01,
                deadline=rng.choice([None, 0.05, 0.1, 0.2]),
                client=rng.choice("abcde"),
            )
        )
    journal, records = record(engine, clock)

    def factory(values: dict[str, KnobValue], clock: Clock) -> Engine:
        engine, executor = fake_engine(clock, **values)
        execute = executor.execute
        executor.execute = lambda plan: execute(plan)._replace(  # type: ignore[method-assign]
            forward=linear(plan) * (1.6 if len(plan.requests) > 1 else 0.7)
        )
        return engine

    again = rerun(journal, factory, journal.steps, {})
    check_same(records, list(again))
    half = rerun(journal, factory, journal.steps // 2, {"max_num_seqs": 4})
    assert tokens_of(list(half)) == tokens_of(records)
    assert half.future.before == fork(journal, journal.steps // 2, {"max_num_seqs": 4}).before


def test_a_minute_ends_when_it_ended_in_the_recording() -> None:
    """An admission exactly at the edge of the minute: a clock that is late by microseconds decides otherwise."""
    engine, clock = timed_engine(num_blocks=80, block_size=4, policy="rpm", requests_per_minute=1)
    for index in range(3):
        engine.submit(Request(f"r{index}", [index] * 9, SamplingParams(max_tokens=4), arrival=0.0))
    journal, records = Journal(engine.config), []
    while engine.has_work():
        it = engine.step()
        if it is None:
            event = engine.next_event()
            assert event is not None
            clock.advance(event - clock.now())
            continue
        journal.add(it)
        records.append(it)
    assert records[-1].t_end > 120
    again = rerun(journal, lambda values, clock: fake_engine(clock, **values)[0], journal.steps, {})
    check_same(records, list(again))


def test_a_rebuild_ends_what_can_be_computed_again() -> None:
    engine, clock = timed_engine(num_blocks=24, block_size=4)
    engine.submit(Request("r", [1, 2, 3], SamplingParams(max_tokens=20, ignore_eos=True)))

    def before(step: int) -> None:
        if step == 8:
            engine.rebuild(timed_engine(num_blocks=24, block_size=8)[0], "fake", "none")

    journal, _ = record(engine, clock, before)
    factory = lambda values, clock: fake_engine(clock, **values)[0]  # noqa: E731
    assert list(rerun(journal, factory, 5, {"max_num_seqs": 2}))
    text = refusal(ForkError, lambda: list(rerun(journal, factory, 12, {})))
    assert "built anew at record 8: a rerun reaches only up to there" in text
