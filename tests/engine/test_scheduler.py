"""The scheduler's rules that traces of another engine do not show: block counts, live changes, reasons, limits.

That its decisions are vLLM's is `tests/parity`; here the expected values come from SCHEDULER's prose.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from engine.config import EngineConfig
from engine.plan import Plan
from engine.records import Limit, Reason
from engine.request import FinishReason, Request, RequestStatus
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler


def scheduler(**asked: Any) -> Scheduler:
    return Scheduler(EngineConfig.resolve(asked))


def change(it: Scheduler, **knobs: Any) -> None:
    for name, value in knobs.items():
        it.configure(it.config.change(name, value))


def add(it: Scheduler, id: str, prompt: int | list[int], output: int | None = None, **fields: Any) -> Request:
    tokens = prompt if isinstance(prompt, list) else [hash((id, i)) % 1000 for i in range(prompt)]
    fields.setdefault("arrival", float(len(it.requests)))
    request = Request(id, tokens, SamplingParams(max_tokens=output), **fields)
    assert it.refusal(request) is None
    it.add(request)
    return request


def finish(it: Scheduler, plan: Plan, sampled: Sequence[int | None]) -> list[Request]:
    """Append the tokens and end who has had them all; nobody stops of his own."""
    drawn = [(request, token) for request, token in zip(plan.requests, sampled, strict=True) if token is not None]
    for request, token in drawn:
        request.token_ids.append(token)
    ended = [request for request, _ in drawn if request.num_tokens >= request.most_tokens]
    it.finish([(request, FinishReason.LENGTH) for request in ended])
    return ended


def commit(it: Scheduler, plan: Plan, token: int = 7) -> list[str]:
    ended = finish(it, plan, [token if samples else None for samples in plan.samples])
    it.pool.check({id: request.block_table for id, request in it.requests.items()})
    return [request.id for request in ended]


def step(it: Scheduler) -> tuple[dict[str, int], Plan]:
    """({id: tokens} in order, plan) of one iteration."""
    plan = it.schedule()
    ran = {item.request.id: item.num_tokens for item in plan.items}
    commit(it, plan)
    return ran, plan


# ---- R-01, R-06 -------------------------------------------------------------------------------------


def test_refusals_have_the_numbers() -> None:
    it = scheduler(num_blocks=5, block_size=4, max_model_len=16)
    assert it.refusal(Request("a", [1] * 15)) is None
    assert "empty" in str(it.refusal(Request("a", [])))
    refused = it.refusal(Request("a", [1] * 16))
    assert refused is not None and "16" in refused


@pytest.mark.parametrize("size", [1, 16, 256])
def test_blocks_are_ceil_of_computed(size: int) -> None:
    """R-06: prompts of B-1, B, B+1 and 2B tokens, 2B+1 output tokens; at every iteration, exactly."""
    for length in {max(1, size - 1), size, size + 1, 2 * size}:
        it = scheduler(block_size=size, num_blocks=-(-(4 * size + 2) // size) + 2, max_num_batched_tokens=7,
                       max_num_seqs=1, enable_prefix_caching=False)  # fmt: skip
        request = add(it, "a", length, 2 * size + 1)
        computed, usable = 0, it.pool.num_usable
        while it.requests:
            plan = it.schedule()
            computed += plan.items[0].num_tokens
            assert request.num_computed == computed
            assert len(request.block_table) == -(-computed // size)
            assert it.pool.num_free == usable - -(-computed // size)
            commit(it, plan)
        assert request.num_output == 2 * size + 1
        assert computed == length + 2 * size  # the last sampled token is never computed
        assert it.pool.num_free == usable


def test_output_is_cut_by_model_len() -> None:
    it = scheduler(num_blocks=5, block_size=4, max_model_len=16)
    request = add(it, "a", 10, 100)
    assert it.most_output(request) == 6
    while it.requests:
        step(it)
    assert request.num_tokens == 16


# ---- chunked prefill switched off while running -----------------------------------------------------


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_prompts_above_the_budget_run_whole(policy: str) -> None:
    """Live only: each alone among prompts, beside the decodes, and nobody is stuck or overtaken."""
    it = scheduler(max_num_batched_tokens=16, max_num_seqs=8, num_blocks=200, policy=policy)
    first = add(it, "first", 3, 40)
    step(it)
    change(it, enable_chunked_prefill="off")
    for id, length in (("big", 100), ("small", 5), ("huge", 300), ("last", 16)):
        add(it, id, length, 3, arrival=10.0 + len(it.requests))
    ran, _ = step(it)
    assert ran == {"first": 1, "big": 100}
    ran, _ = step(it)
    assert ran == {"first": 1, "big": 1, "small": 5}, "huge waits until it is the only prompt"
    ran, plan = step(it)
    assert ran == {"first": 1, "big": 1, "small": 1, "huge": 300} and plan.budget_left == 0
    assert plan.limit is Limit.TOKEN_BUDGET
    for _ in range(50):
        step(it)
    assert not it.requests and first.num_output == 40


def test_running_chunks_go_on_after_chunking_is_off() -> None:
    it = scheduler(max_num_batched_tokens=16, num_blocks=200)
    add(it, "a", 40, 2)
    add(it, "b", 100, 2)
    assert step(it)[0] == {"a": 16}
    change(it, enable_chunked_prefill=False)
    assert step(it)[0] == {"a": 16}
    assert step(it)[0] == {"a": 8}, "a prompt was continued: the whole one waits"
    assert step(it)[0] == {"a": 1, "b": 100}


def test_threshold_still_chunks_when_chunking_is_off() -> None:
    it = scheduler(max_num_batched_tokens=16, max_num_seqs=16, num_blocks=200, long_prefill_token_threshold=4)
    change(it, enable_chunked_prefill=False)
    add(it, "a", 40, 2)
    add(it, "b", 100, 2)
    assert step(it)[0] == {"a": 4, "b": 4}


# ---- live limits ------------------------------------------------------------------------------------


def test_lowered_limits_drain_and_throw_nobody_out() -> None:
    it = scheduler(max_num_seqs=4, num_blocks=100)
    for id in "abcde":
        add(it, id, 2, 4)
    assert list(step(it)[0]) == ["a", "b", "c", "d"]
    change(it, max_num_seqs=1)
    ran, plan = step(it)
    assert list(ran) == ["a", "b", "c", "d"] and not plan.preempted
    assert plan.blocked is not None and plan.blocked.reason is Reason.SEQS and plan.limit is Limit.SEQ_CAP
    for _ in range(3):
        step(it)
    assert list(it.requests) == ["e"]


def test_a_smaller_budget_leaves_later_decodes_waiting() -> None:
    it = scheduler(max_num_seqs=4, num_blocks=100)
    for id in "abcd":
        add(it, id, 2, 9)
    step(it)
    change(it, max_num_scheduled_tokens=2)
    ran, plan = step(it)
    assert ran == {"a": 1, "b": 1}
    assert [(u.id, u.reason) for u in plan.unscheduled] == [("c", Reason.BUDGET), ("d", Reason.BUDGET)]
    assert plan.limit is Limit.TOKEN_BUDGET


def test_policy_change_reorders_the_queue_only() -> None:
    it = scheduler(max_num_seqs=1, num_blocks=100)
    add(it, "run", 2, 50)
    step(it)
    for id, priority in (("a", 5), ("b", -1), ("c", 5)):
        add(it, id, 2, 2, priority=priority)
    change(it, policy="priority")
    assert [r.id for r in it.waiting] == ["b", "a", "c"] and [r.id for r in it.running] == ["run"]
    change(it, policy="fcfs")
    assert [r.id for r in it.waiting] == ["a", "b", "c"]
    it.abort("b")
    assert [r.id for r in it.waiting] == ["a", "c"]


# ---- who waits, and why -----------------------------------------------------------------------------


def test_reasons() -> None:
    it = scheduler(num_blocks=11, block_size=4, max_model_len=40, max_num_batched_tokens=20, max_num_seqs=3)
    add(it, "a", 16, 20)
    add(it, "b", 30, 5)
    plan = it.schedule()
    assert plan.blocked is not None and plan.blocked.id == "b"
    assert plan.blocked.reason is Reason.BLOCKS and "8 blocks, 6 free" in plan.blocked.detail
    assert plan.limit is Limit.KV_PRESSURE
    commit(it, plan)
    it.abort("b")
    add(it, "c", 25, 5, arrival=5.0)
    change(it, scheduler_reserve_full_isl=False, watermark=0.3)
    plan = it.schedule()
    assert plan.blocked is not None and plan.blocked.reason is Reason.WATERMARK
    commit(it, plan)


def test_head_of_line_blocks_a_shorter_one() -> None:
    it = scheduler(num_blocks=6, block_size=4, max_model_len=20)
    add(it, "a", 8, 9)
    add(it, "long", 13, 2)
    add(it, "short", 1, 1)
    assert step(it)[0] == {"a": 8}
    assert step(it)[0] == {"a": 1}


def test_nothing_is_admitted_in_an_iteration_that_preempts() -> None:
    it = scheduler(num_blocks=5, block_size=4, max_model_len=16, enable_prefix_caching=False)
    add(it, "a", 7, 9)
    add(it, "b", 8, 9)
    step(it)
    add(it, "c", 1, 1)
    ran, plan = step(it)
    assert not plan.preempted or "c" not in ran
    while not plan.preempted:
        ran, plan = step(it)
    assert [victim.id for victim in plan.preempted] == ["b"] and "c" not in ran
    assert plan.blocked is not None and plan.blocked.reason is Reason.PREEMPTION and plan.blocked.id == "b"
    assert it.requests["b"].status is RequestStatus.PREEMPTED and it.requests["b"].num_computed == 0


def test_a_request_that_preempts_itself_beside_a_held_one_leaves_an_empty_plan() -> None:
    """prefill_schedule_interval holds the other one back: nothing runs, and the next iteration goes on."""
    it = scheduler(
        num_blocks=6, block_size=4, max_model_len=20, max_num_batched_tokens=12, scheduler_reserve_full_isl=False,
        prefill_schedule_interval=50, enable_prefix_caching=False,
    )  # fmt: skip
    add(it, "long", 19, 1)
    add(it, "a", 4, 16)
    change(it, long_prefill_token_threshold=8)
    for _ in range(20):
        ran, plan = step(it)
        if plan.preempted:
            break
    assert plan.preempted and not ran
    assert step(it)[0]


def test_progress_with_random_knobs() -> None:
    """No stall: whenever anybody is there, two iterations in a row run something."""
    rng = random.Random(2)
    it = scheduler(num_blocks=12, block_size=4, max_model_len=44, max_num_batched_tokens=16, max_num_seqs=8)
    choices: dict[str, list[Any]] = {
        "max_num_seqs": [1, 4, 8], "max_num_scheduled_tokens": [None, 1, 9], "prefill_schedule_interval": [1, 3, 7],
        "watermark": [0.0, 0.5, 0.9], "long_prefill_token_threshold": [0, 1, 6], "policy": ["fcfs", "priority"],
        "enable_chunked_prefill": [True, False], "scheduler_reserve_full_isl": [True, False],
        "long_prefill_token_threshold_adaptive": [True, False], "max_num_active_seqs": [None, 1],
    }  # fmt: skip
    empty, serial = 0, 0
    for _ in range(4000):
        if rng.random() < 0.2:
            name = rng.choice(list(choices))
            try:
                change(it, **{name: rng.choice(choices[name])})
            except Exception as error:
                assert "max_num" in str(error)
        if rng.random() < 0.25:
            serial += 1
            add(it, f"r{serial}", [rng.randrange(2) for _ in range(rng.randrange(1, 43))], rng.randrange(1, 20),
                priority=rng.randrange(3), arrival=float(serial))  # fmt: skip
        there = bool(it.requests)
        ran, _ = step(it)
        empty = empty + 1 if there and not ran else 0
        assert empty < 2
    assert serial > 500


# ---- costs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_an_iteration_looks_at_the_head_of_a_long_queue_only(policy: str) -> None:
    it = scheduler(max_num_seqs=2, num_blocks=100, policy=policy)
    for n in range(3000):
        add(it, f"r{n}", 2, 50)
    step(it)

    class Untouchable(list[int]):
        def __len__(self) -> int:
            raise AssertionError("looked at a request far behind")

        __getitem__ = __iter__ = __len__  # type: ignore[assignment]

    for request in list(it.waiting)[3:]:
        request.token_ids = Untouchable()
    for _ in range(20):
        step(it)


# ---- keys that must not outlive their K/V -----------------------------------------------------------


def test_keys_of_unwritten_blocks_are_dropped() -> None:
    """SCHEDULER 9: a victim that was scheduled in the same iteration leaves no key past what was computed before."""
    it = scheduler(num_blocks=10, block_size=2, max_model_len=18, max_num_batched_tokens=6, max_num_seqs=4,
                   policy="priority", scheduler_reserve_full_isl=False)  # fmt: skip
    rng = random.Random(0)
    dropped = 0
    for n in range(400):
        if len(it.requests) < 4:
            add(it, f"r{n}", [rng.randrange(2) for _ in range(rng.randrange(1, 16))], rng.randrange(1, 4),
                priority=rng.randrange(4), arrival=float(n))  # fmt: skip
        computed = {id: request.num_computed for id, request in it.requests.items()}
        keys_before = set(it.pool._index)
        plan = it.schedule()
        running = {item.request.id for item in plan.items}
        for victim in plan.preempted:
            request = it.requests[victim.id]
            lost_now = victim.lost_tokens - computed[victim.id]
            assert victim.id not in running and lost_now == 0, "tokens of this iteration count as computed"
            mine = set(request.block_keys[victim.lost_tokens // 2 :]) - keys_before
            others = {k for item in plan.items for k in item.request.block_keys}
            assert not (mine - others) & set(it.pool._index)
            dropped += 1
        commit(it, plan)
    assert dropped > 5


def test_a_request_without_finite_logits_leaves_no_keys() -> None:
    it = scheduler(num_blocks=20, block_size=4)
    add(it, "bad", [1] * 12, 5)
    plan = it.schedule()
    it.finish([(plan.requests[0], FinishReason.ERROR)])
    assert it.pool._index == {} and it.pool.num_free == 19
    add(it, "next", [1] * 12, 1)
    assert it.schedule().prefix.hits == 0
