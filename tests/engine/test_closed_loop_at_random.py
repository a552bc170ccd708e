"""Closed loops of any shape, under preemption, aborts, pauses and a rebuild: arrivals against plain arithmetic."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.clock import Clock, ManualClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.records import Arrived, Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.whatif.journal import Journal
from engine.whatif.rerun import Rerun
from tests.engine.fakes import FakeExecutor, fake_engine
from tests.engine.test_closed_loop import STEP, Late

COUNT = 40


@dataclass
class Asked:
    request: Request
    when: float
    arrival: float


@dataclass
class Talk:
    """A run in which whoever comes may follow somebody who was, is, or will be here."""

    config: EngineConfig
    knobs: dict[str, Any]
    asked: dict[str, Asked] = field(default_factory=dict)
    aborted: dict[str, float] = field(default_factory=dict)
    records: list[Iteration] = field(default_factory=list)
    arrivals: dict[str, Arrived] = field(default_factory=dict)
    ends: dict[str, float] = field(default_factory=dict)


def ticking(knobs: dict[str, Any], clock: ManualClock) -> Engine:
    engine, executor = fake_engine(clock, **knobs)
    executor.hook = lambda plan: clock.advance(STEP)
    return engine


def talk(seed: int, rebuilt: bool) -> Talk:
    rng, clock = random.Random(seed), ManualClock(7.25)
    knobs = {
        "num_blocks": rng.randrange(17, 30), "block_size": 4, "max_model_len": 60, "max_num_batched_tokens": 32,
        "max_num_seqs": rng.choice((1, 4)), "num_cpu_blocks": 20, "scheduler_reserve_full_isl": False,
        "preemption_mode": rng.choice(("recompute", "swap")), "policy": rng.choice(("fcfs", "priority", "srpt")),
    }  # fmt: skip
    engine = ticking(knobs, clock)
    run = Talk(engine.config, knobs)
    while len(run.asked) < COUNT or engine.has_work():
        number, busy = len(run.asked), len(run.asked) < COUNT
        if busy and rng.random() < 0.5:
            length, now = rng.choice((5, 20, 50, 70)), clock.now()
            after = f"r{rng.randrange(max(0, number - 5), number + 4)}" if rng.random() < 0.6 else None
            request = Request(
                f"r{number}", [] if number % 3 == 0 else [7] * length,
                SamplingParams(max_tokens=rng.choice((1, 3, 20)), ignore_eos=True), priority=rng.randrange(3),
                arrival=rng.choice((None, now + rng.random() * 9)), after=after,
                delay=rng.choice((0.0, 0.1, 1.75)) if after else 0.0,
                late=Late(length, 7) if number % 3 == 0 else None,
            )  # fmt: skip
            run.asked[request.id] = Asked(request, now, now if request.arrival is None else request.arrival)
            engine.submit(request)
        if busy and run.asked and rng.random() < 0.1:
            id = rng.choice(list(run.asked))
            run.aborted.setdefault(id, clock.now())
            engine.abort(id)
        if rebuilt and number == COUNT // 2:
            engine.rebuild(ticking({**knobs, "block_size": 8, "num_blocks": 12}, clock), "fake", "none")
            rebuilt = False
        engine.paused = busy and rng.random() < 0.1
        it = engine.step(run=not engine.paused)
        event = engine.next_event()
        if it is not None:
            run.records.append(it)
        elif event is not None and event > clock.now():
            clock.advance(event - clock.now())
    last = engine.step()
    run.records += [last] if last is not None else []
    for it in run.records:
        run.arrivals |= {new.id: new for new in it.arrived}
        run.ends |= {one.id: it.t_end for one in (*it.finished, *it.rejected)}
    return run


def expected(run: Talk, id: str) -> float:
    """The end of whom it follows plus the delay; for one who had ended, or is not known by then, from when it came."""
    asked = run.asked[id]
    leader = asked.request.after
    if leader is None:
        return asked.arrival
    order = list(run.asked)
    known = leader in order[: order.index(id)]  # a step lies between any two: who came later came too late
    end = run.ends[leader] if known else 0.0
    return max(end, asked.when) + asked.request.delay


@given(st.integers(0, 1 << 30), st.booleans())
@settings(max_examples=60, deadline=None)
def test_arrivals_are_ends_and_delays(seed: int, rebuilt: bool) -> None:
    run = talk(seed, rebuilt)
    assert set(run.ends) == set(run.asked)
    for id, arrived in run.arrivals.items():
        due = expected(run, id)
        if run.aborted.get(id, due) < due:  # ended before its time
            continue
        assert abs(arrived.arrival - due) < 1e-9, id
        taken = next(it for it in run.records if arrived in it.arrived)
        assert taken.t_start >= arrived.arrival
    journal = Journal(run.config)
    for it in run.records:
        journal.add(it)
    assert journal.broken is None
    if rebuilt:
        return

    def factory(knobs: dict[str, Any], clock: Clock) -> Engine:
        engine, executor = fake_engine(clock, **run.knobs)
        assert isinstance(executor, FakeExecutor)
        return engine

    again = list(Rerun(journal, factory, journal.steps, {}))
    assert {new.id: new.arrival for it in again for new in it.arrived} == {
        id: arrived.arrival for id, arrived in run.arrivals.items()
    }
    assert [it.scheduled for it in again if it.executed] == [it.scheduled for it in run.records if it.executed]


def test_these_runs_are_crowded() -> None:
    runs = [talk(seed, False) for seed in range(12)]
    assert sum(len(it.preempted) for run in runs for it in run.records) > 10
    assert sum(asked.request.after in run.ends for run in runs for asked in run.asked.values()) > 100
    assert sum(len(it.rejected) for run in runs for it in run.records) > 10
