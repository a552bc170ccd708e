"""Memory stays flat: requests and clients come and go for ever, and nothing of them is left."""

from __future__ import annotations

import gc
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

import engine
from engine.clock import ManualClock
from engine.engine import Engine
from engine.executors.base import Sampled
from engine.executors.rows import BatchRows
from engine.plan import Plan
from engine.policies import POLICIES
from engine.policies import accounts as accounts_module
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine

WARM_UP, ITERATIONS = 1500, 5000


class Churn:
    """A full engine, every request a client of its own; some are aborted, some only planned and then aborted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **asked: Any) -> None:
        monkeypatch.setenv("WORKBENCH_CHECK", "0")
        monkeypatch.setattr(accounts_module, "MOST_IDLE", 64)
        self.clock = ManualClock()
        asked = {"num_blocks": 40, "block_size": 4, "max_model_len": 40, "max_num_seqs": 6, **asked}
        self.engine, executor = fake_engine(self.clock, requests_per_minute=1000, **asked)
        rows = BatchRows(40, 4)

        def execute(plan: Plan) -> Sampled:
            packed = rows.pack(plan, 1)
            tokens = [65 if samples else None for samples in plan.samples]
            rows.append(packed.sampling, [65] * len(packed.sampling))
            return Sampled(list(tokens), 0.0, 0.001, 0.0)

        executor.execute = execute  # type: ignore[method-assign]
        executor.release = rows.release  # type: ignore[method-assign]
        executor.copy_blocks = lambda out, back: 0  # type: ignore[method-assign]
        self._rng = random.Random(1)
        self._number = 0

    def run(self, iterations: int) -> Engine:
        """So many iterations, then until nothing is left."""
        rng, engine = self._rng, self.engine
        for _ in range(iterations):
            self.clock.advance(0.02)
            if len(engine.scheduler.requests) < 12:
                self._submit(f"r{self._number}", self.clock.now() + rng.choice([0.0, 0.0, 0.1]))
                self._submit(f"later{self._number}", self.clock.now() + 1e6)
                engine.abort(f"later{self._number}")
                engine.abort(f"r{self._number - rng.randrange(30)}")
                self._number += 1
            engine.step()
        while engine.has_work():
            self.clock.advance(0.1)
            engine.step()
        return engine

    def _submit(self, id: str, arrival: float) -> None:
        rng = self._rng
        prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 12))]
        params = SamplingParams(max_tokens=rng.randrange(1, 25))
        self.engine.submit(
            Request(id, prompt, params, arrival=arrival, client=f"c{id}", priority=rng.randrange(3), deadline=1.0)
        )


def allocated() -> int:
    """Bytes that the engine's own lines hold."""
    gc.collect()
    folder = str(Path(engine.__file__).parent / "*")
    snapshot = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, folder)])
    return sum(trace.size for trace in snapshot.traces)


@pytest.mark.parametrize("asked", [{}, {"preemption_mode": "swap"}, {"batching": "static"}], ids=str)
def test_nothing_is_left_of_who_is_gone(monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> None:
    churn = Churn(monkeypatch, **asked)
    tracemalloc.start()
    try:
        churn.run(WARM_UP)
        bytes_before, objects_before = allocated(), len(gc.get_objects())
        churn.run(ITERATIONS)
        bytes_after, objects_after = allocated(), len(gc.get_objects())
    finally:
        tracemalloc.stop()
    assert bytes_after - bytes_before < 20_000, (bytes_before, bytes_after)
    assert objects_after - objects_before < 300, (objects_before, objects_after)
    assert len(churn.engine._planned._heap) <= 64


@pytest.mark.parametrize("policy", list(POLICIES))
def test_policies_forget(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of clients that never come back, displaced and swapped requests among them."""
    churn = Churn(monkeypatch, policy=policy, preemption_mode="swap", num_blocks=24, aging=None)
    for _ in range(2):
        policy_now = churn.run(WARM_UP).scheduler.policy
        policy_now.env.now = churn.clock.now() + 61.0
        policy_now.begin()
        next(iter(policy_now), None)  # puts in order what was left for later
        sizes = {name: len(value) for name, value in vars(policy_now).items() if hasattr(value, "__len__")}
        assert max(sizes.values(), default=0) <= 64, sizes
