"""Recordings to fork: runs with all kinds of commands, driven as a screen would drive them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from engine.clock import ManualClock
from engine.engine import Engine
from engine.errors import ConfigError
from engine.executors.base import Sampled
from engine.knobs import VICTIM_NAMES
from engine.plan import Plan
from engine.policies import POLICIES
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.whatif import Journal
from tests.engine.fakes import FakeExecutor, fake_engine


def slow(executor: FakeExecutor, clock: ManualClock, seconds: Callable[[Plan], float]) -> None:
    """Make execution take time on the clock."""
    execute = executor.execute

    def timed(plan: Plan) -> Sampled:
        taken = seconds(plan)
        clock.advance(taken)
        return execute(plan)._replace(forward=0.75 * taken)

    executor.execute = timed  # type: ignore[method-assign]


def linear(plan: Plan) -> float:
    """4 ms, 0.1 ms a sequence, 20 µs a token, and a little for each token looked back on."""
    tokens = sum(item.num_tokens for item in plan.items)
    context = sum(item.start + 1 for item in plan.items if item.num_tokens == 1)
    return 4e-3 + 1e-4 * len(plan.items) + 2e-5 * tokens + 3e-7 * context


def timed_engine(seconds: Callable[[Plan], float] = linear, **asked: Any) -> tuple[Engine, ManualClock]:
    clock = ManualClock()
    engine, executor = fake_engine(clock, **asked)
    slow(executor, clock, seconds)
    return engine, clock


def requests(count: int, seed: int = 0, every: float = 0.01, shared: int = 0) -> list[Request]:
    """Planned ones with random prompts (the first `shared` tokens equal), lengths, priorities and clients."""
    rng = random.Random(seed)
    common = [rng.randrange(256) for _ in range(shared)]
    return [
        Request(
            f"r{index}",
            common + [rng.randrange(256) for _ in range(rng.randrange(1, 60))],
            SamplingParams(max_tokens=rng.randrange(1, 40)),
            priority=rng.randrange(3),
            client=rng.choice("ab"),
            arrival=index * every,
        )
        for index in range(count)
    ]


def record(
    engine: Engine,
    clock: ManualClock,
    before: Callable[[int], None] = lambda step: None,
    gap: float = 2e-4,
    most: int | None = None,
) -> tuple[Journal, list[Iteration]]:
    """Run to the end (or `most` records) as the engine's thread would; idle time passes on the clock."""
    journal, records = Journal(engine.config), []
    while engine.has_work() and (most is None or len(records) < most):
        before(engine.step_count)
        it = engine.step()
        if it is None:
            arrival = engine.next_event()
            assert arrival is not None, "stuck"
            clock.advance(arrival - clock.now() + 1e-9)
            continue
        clock.advance(gap)
        journal.add(it)
        records.append(it)
    return journal, records


def wild_recording(seed: int, most: int | None = None, **asked: Any) -> tuple[Journal, list[Iteration]]:
    """Planned and sudden arrivals, aborts anywhere, knob changes, pauses, paces, stops and bad logits."""
    rng = random.Random(seed)
    ends: dict[str, int] = {}

    def tokens(id: str, position: int) -> int:
        at = ends.setdefault(id, rng.randrange(3, 100))
        if position > at and id.endswith("3"):
            return -1
        return 257 if position > at and id.endswith("7") else 40 + (position * 7 + len(id)) % 80

    clock = ManualClock()
    asked = {"num_blocks": 24, "block_size": 4, "max_num_seqs": 6, "max_num_batched_tokens": 48, **asked}
    engine, executor = fake_engine(clock, tokens, **asked)
    slow(executor, clock, linear)
    journal, records = Journal(engine.config), []
    for request in requests(25, seed, every=0.02, shared=8):
        engine.submit(request)
    sudden = 0

    def knob() -> None:
        name, value = rng.choice(
            [
                ("max_num_seqs", rng.randrange(1, 9)),
                ("max_num_batched_tokens", rng.randrange(4, 64)),
                ("policy", rng.choice(list(POLICIES))),
                ("watermark", rng.choice([0.0, 0.1])),
                ("enable_chunked_prefill", rng.random() < 0.7),
                ("long_prefill_token_threshold", rng.choice([0, 8])),
                ("prefill_schedule_interval", rng.choice([1, 2])),
                ("batching", rng.choice(["static", "continuous", "continuous"])),
                ("preemption_mode", rng.choice(["recompute", "swap"])),
                ("victim", rng.choice(VICTIM_NAMES)),
                ("num_blocks", rng.randrange(12, 25)),
                ("client_token_budget", rng.choice([0, 16])),
                ("reserve_output", rng.random() < 0.3),
                ("aging", rng.choice([None, 0.5])),
            ]
        )
        engine.try_knob(name, value)

    while engine.has_work() and (most is None or len(records) < most):
        if rng.random() < 0.05:
            knob()
        if rng.random() < 0.05 and sudden < 12:
            sudden += 1
            late = rng.choice([None, max(0.0, clock.now() - 0.005), clock.now() + 0.1])
            new = requests(1, rng.randrange(1000), shared=8)[0]
            engine.submit(
                Request(
                    rng.choice([f"s{sudden}", "again"]),
                    new.output_ids + new.token_ids,
                    SamplingParams(max_tokens=rng.randrange(1, 30)),
                    arrival=late,
                    priority=rng.randrange(3),
                )
            )
        if rng.random() < 0.03:
            engine.abort(rng.choice([f"r{rng.randrange(25)}", "again"]), "gone")
        if rng.random() < 0.03:
            engine.paused = not engine.paused
        if rng.random() < 0.02:
            engine.pace = rng.choice([None, 50.0])
        it = engine.step(run=not engine.paused and rng.random() < 0.95)
        clock.advance(rng.choice([2e-4, 2e-4, 5e-3]))
        if it is not None:
            journal.add(it)
            records.append(it)
    return journal, records


def refusal(error: type[Exception], call: Callable[[], Any]) -> str:
    """The one line it says."""
    try:
        call()
    except error as problem:
        text = str(problem)
        assert "\n" not in text and text
        return text
    raise AssertionError(f"no {error.__name__}")


__all__ = ["ConfigError", "linear", "record", "refusal", "requests", "slow", "timed_engine", "wild_recording"]
