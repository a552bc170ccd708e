"""Runs of a real scheduler with made-up tokens, in which everything happens that records can tell."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from engine.clock import ManualClock
from engine.executors.base import Sampled
from engine.host import EngineInfo
from engine.plan import Plan
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import FakeExecutor, fake_engine

KNOBS: dict[str, Any] = {
    "num_blocks": 30, "block_size": 4, "max_model_len": 80, "max_num_batched_tokens": 32, "max_num_seqs": 8,
    "num_cpu_blocks": 40, "scheduler_reserve_full_isl": False,
}  # fmt: skip


class Run:
    """`records` of an engine of `info`; `clock` stands at their end."""

    def __init__(self, info: EngineInfo, records: list[Iteration]) -> None:
        self.info = info
        self.records = records


def random_run(seed: int, *, count: int = 40, steps: int = 10_000, model: str = "fake", **knobs: Any) -> Run:
    """Crowded: preemptions, swaps, aborts (also before the arrival), refusals, knob changes, a pause and a rebuild.

    steps: fewer leave requests unfinished. Building, running, sampling and swapping take some milliseconds.
    """
    rng = random.Random(seed)
    clock = ManualClock()
    mode = ("recompute", "swap")[seed % 2]
    policy = ("fcfs", "srpt", "mlfq", "priority")[seed % 4]
    asked = {**KNOBS, "preemption_mode": mode, "policy": policy, **knobs}
    engine, executor = fake_engine(clock, **asked)

    _take_time(executor, clock)
    info = EngineInfo(model, "cpu", "float32", 1, engine.config, 256, 1 << 20, 1_000)
    for number in range(count):
        engine.submit(
            Request(
                f"r{number}", [rng.randrange(3) for _ in range(rng.randrange(1, 40))],
                SamplingParams(max_tokens=rng.randrange(1, 30), ignore_eos=True),
                client="abc"[number % 3], priority=rng.randrange(3), arrival=rng.random() * count / 40,
                deadline=rng.choice([None, 0.05, 2.0]), session=rng.choice([None, "s1"]),
                prompt_text=f"prompt of r{number}",
            )
        )  # fmt: skip
    engine.submit(Request("too-long", [1] * 200, SamplingParams(max_tokens=3)))
    engine.submit(Request("never", [1], SamplingParams(max_tokens=3), arrival=900.0))
    records: list[Iteration] = []
    while engine.has_work() and steps:
        number = len(records)
        if number == 10:
            engine.abort("never", "changed my mind")
        if number in (20, 45):
            for id in rng.sample([request.id for request in engine.scheduler.requests.values()], 1):
                engine.abort(id)
        if number == 30:
            engine.set_knob("max_num_seqs", 4)
        if number == 60:
            new, executor = fake_engine(clock, **{**asked, "block_size": 8, "num_blocks": 20, "num_cpu_blocks": 20})
            _take_time(executor, clock)
            engine.rebuild(new, model, "float32")
        clock.advance(0.001)
        event = engine.next_event()
        if not engine.scheduler.running and event is not None and event > clock.now():
            clock.advance(event - clock.now())
        it = engine.step()
        if it is not None:
            records.append(it)
            steps -= 1
    return Run(info, records)


def _take_time(executor: FakeExecutor, clock: ManualClock) -> None:
    execute, copy_blocks = executor.execute, executor.copy_blocks

    def timed(plan: Plan) -> Sampled:
        forward = 0.004 + 0.0001 * plan.num_tokens
        clock.advance(0.0007 + forward)
        return Sampled(execute(plan).tokens, 0.0003, forward, 0.0004)

    def copied(out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        clock.advance(0.0002 * (len(out) + len(back)))
        return copy_blocks(out, back)

    executor.execute, executor.copy_blocks = timed, copied  # type: ignore[method-assign]
