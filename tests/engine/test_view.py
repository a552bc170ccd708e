"""`EngineView`: the engine's state from its records alone. That it equals the engine is checked wherever one runs."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.engine import Engine
from engine.records import WAITING_HEAD, Phase, Reason
from engine.request import FinishReason, Request, RequestStatus
from engine.sampling_params import SamplingParams
from engine.view import KEEP_FINISHED, EngineView
from tests.engine.fakes import fake_engine
from tests.engine.harness import check_view


class Watched:
    def __init__(self, **asked: Any) -> None:
        self.clock = ManualClock()
        self.engine: Engine = fake_engine(self.clock, **asked)[0]
        config = self.engine.config
        self.view = EngineView(config.num_blocks, config.block_size, config.values())

    def submit(self, id: str, prompt: int = 3, output: int = 5, **fields: Any) -> None:
        params = SamplingParams(max_tokens=output, ignore_eos=True)
        self.engine.submit(Request(id, [hash(id) % 97] * prompt, params, **fields))

    def step(self, *, run: bool = True) -> None:
        it = self.engine.step(run=run)
        if it is not None:
            check_view(self.view.apply(it), self.engine)


def test_life_of_a_request() -> None:
    w = Watched(max_num_batched_tokens=4, max_num_seqs=4, block_size=2)
    w.submit("a", 6, 3, client="alice", priority=2)
    w.clock.advance(1.0)
    w.step(run=False)
    a = w.view.requests["a"]
    assert (a.client, a.priority, a.arrival, a.prompt_len, a.max_tokens) == ("alice", 2, 0.0, 6, 3)
    assert a.status is RequestStatus.WAITING and a.first_scheduled is None and a.ttft is None
    w.step()
    assert a.status is RequestStatus.RUNNING and a.phase is Phase.PREFILL and a.computed == 4
    assert a.first_scheduled == 1.0 and a.output_len == 0 and len(a.blocks) == 2
    w.clock.advance(1.0)
    w.step()
    assert a.phase is Phase.PREFILL and a.computed == 6 and a.output_len == 1 and a.ttft == 2.0
    w.step()
    assert a.phase is Phase.DECODE and a.token_steps == [2, 3]
    w.step()
    assert a.status is RequestStatus.FINISHED and a.finish_reason is FinishReason.LENGTH
    assert a.blocks == [] and a.finished_step == 4 and len(a.text) == 3 and a.token_times == [2.0] * 3
    assert w.view.finished[FinishReason.LENGTH] == 1 and w.view.used_blocks == 0 and w.view.kv_usage == 0.0
    assert w.view.peak_used == 4


def test_records_must_follow_each_other() -> None:
    w = Watched()
    w.submit("a")
    it = w.engine.step()
    assert it is not None
    w.view.apply(it)
    with pytest.raises(ValueError, match="cannot follow"):
        w.view.apply(it)
    w.engine.step()
    later = w.engine.step()
    assert later is not None
    with pytest.raises(ValueError, match="record 2"):
        w.view.apply(later)


def test_reasons() -> None:
    w = Watched(num_blocks=5, block_size=4, max_model_len=16, max_num_seqs=2)
    w.submit("a", 8, 8)
    w.submit("b", 12, 2)
    w.submit("c", 1, 2)
    w.step()
    assert w.view.reason_of("a") == (None, "")
    reason, detail = w.view.reason_of("b")
    assert reason is Reason.BLOCKS and "3 blocks, 2 free" in detail
    reason, detail = w.view.reason_of("c")
    assert reason is Reason.BEHIND_HEAD and "b" in detail and "blocks" in detail
    w.engine.paused = True
    w.step(run=False)
    assert w.view.reason_of("c")[0] is Reason.PAUSED
    w.engine.paused = False
    w.engine.set_knob("max_num_seqs", 1)
    w.step()
    assert w.view.reason_of("b")[0] is Reason.SEQS


def test_reason_of_a_running_one_without_budget() -> None:
    w = Watched(max_num_batched_tokens=4, max_num_seqs=4)
    w.submit("a", 3, 9)
    w.submit("b", 8, 9)
    w.step()
    w.engine.set_knob("max_num_scheduled_tokens", 1)
    w.step()
    assert w.view.reason_of("b")[0] is Reason.BUDGET and w.view.requests["b"].phase is None
    w.engine.set_knob("max_num_scheduled_tokens", None)
    w.step()
    assert w.view.reason_of("b") == (None, "")


def test_preempted_ones_say_so() -> None:
    w = Watched(num_blocks=5, block_size=4, max_model_len=16, enable_prefix_caching=False)
    w.submit("a", 7, 9)
    w.submit("b", 8, 8)
    while not w.view.preemptions:
        w.step()
    b = w.view.requests["b"]
    assert b.status is RequestStatus.PREEMPTED and b.computed == 0 and b.blocks == [] and b.preemptions == 1
    assert w.view.reason_of("b")[0] is Reason.PREEMPTION
    assert w.view.live() == [w.view.requests["a"], b]
    while w.engine.has_work():
        w.step()
    assert b.recomputed_tokens >= 8 and b.output_len == 8


def test_waiting_ids_of_a_long_queue() -> None:
    w = Watched(max_num_seqs=1)
    for n in range(200):
        w.submit(f"r{n}")
    w.step()
    ids = [f"r{n}" for n in range(1, 200)]
    assert w.view.waiting_ids() == ids and w.view.waiting_ids(3) == ids[:3] and w.view.waiting_ids(100) == ids[:100]
    w.engine.abort("r100")
    w.engine.abort("r2")
    w.step()
    left = [id for id in ids if id not in ("r100", "r2")]
    assert w.view.waiting_ids() == left and w.view.num_waiting == 197 > WAITING_HEAD


def test_finished_ones_are_forgotten() -> None:
    w = Watched(max_num_seqs=200, max_num_batched_tokens=600)
    for n in range(KEEP_FINISHED + 100):
        w.submit(f"r{n}", output=1)
    w.submit("alive", output=50)
    for _ in range(10):
        w.step()
    assert len(w.view.requests) == KEEP_FINISHED + 1 and "alive" in w.view.requests
    assert "r99" not in w.view.requests and "r100" in w.view.requests
    assert w.view.finished[FinishReason.LENGTH] == KEEP_FINISHED + 100


def test_a_copy_is_a_keyframe() -> None:
    """Folding on leaves it as it was, and folding the same records into it leads to the same state."""
    rng = random.Random(4)
    w = Watched(num_blocks=12, block_size=2, max_model_len=20, max_num_seqs=6, scheduler_reserve_full_isl=False)
    kept: EngineView | None = None
    frozen: dict[str, Any] = {}
    later = []

    def state(view: EngineView) -> dict[str, Any]:
        return {name: copy.deepcopy(value) for name, value in vars(view).items() if name != "last"}

    for n in range(120):
        if n < 60:
            w.submit(f"r{n}", rng.randrange(1, 10), rng.randrange(1, 9))
        if n % 7 == 0:
            w.engine.abort(f"r{n - 3}")
        if n == 50:
            w.engine.set_knob("max_num_seqs", 3)
        it = w.engine.step()
        if it is None:
            break
        w.view.apply(it)
        if kept is not None:
            later.append(it)
        if n == 40:
            kept = w.view.copy()
            frozen = state(kept)
    assert kept is not None and len(later) > 10 and w.view.preemptions > 0
    assert state(kept) == frozen
    for it in later:
        kept.apply(it)
    assert state(kept) == state(w.view)
