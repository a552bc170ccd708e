"""`TimedExecutor`: computes with another executor, and says that it took what the work is worth.

The tokens are real, the time is not: an iteration costs `step_ns`, and `token_ns` for every token in it; a KV block
copied to the swap pool or back costs as much as a token. So a run depends on its requests, seed and knobs alone, and
not on the machine, its load or its threads (as far as the model gives the same tokens there: float32 does in practice).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.clock import VirtualClock
from engine.executors.base import Executor, Sampled
from engine.plan import Plan


@dataclass(frozen=True, slots=True)
class Costs:
    """What work takes on a virtual clock, in nanoseconds."""

    step_ns: int = 10_000_000
    """Of every iteration: 10 ms."""
    token_ns: int = 50_000
    """Of every token in it, prompt and output alike: 50 µs."""


class TimedExecutor:
    def __init__(self, executor: Executor, clock: VirtualClock, costs: Costs) -> None:
        """clock: the engine's own."""
        self._executor = executor
        self._clock = clock
        self._costs = costs

    def execute(self, plan: Plan) -> Sampled:
        sampled = self._executor.execute(plan)
        ns = self._costs.step_ns + self._costs.token_ns * plan.num_tokens
        self._clock.advance_ns(ns)
        return Sampled(sampled.tokens, 0.0, ns / 1e9, 0.0)

    def copy_blocks(self, out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        size = self._executor.copy_blocks(out, back)
        self._clock.advance_ns(self._costs.token_ns * (len(out) + len(back)))
        return size

    def release(self, id: str) -> None:
        self._executor.release(id)
