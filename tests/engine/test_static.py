"""Static against continuous batching: the exact integers of the seed example.

Eight requests with outputs 20, 45, 210, 33, 8, 67, 400, 12, one-token prompts, one token a step and slot. The figures
are arithmetic (sums of the longest member of each batch), not what this engine printed.
"""

from __future__ import annotations

from typing import Any

import pytest

from engine.engine import Engine
from engine.records import Iteration, Reason
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine
from tests.engine.harness import run

SEED = (20, 45, 210, 33, 8, 67, 400, 12)


def seeded(slots: int, batching: str, copies: int = 1, **asked: Any) -> Engine:
    asked = {"num_blocks": 256, "block_size": 16, "max_num_batched_tokens": 256} | asked
    engine, executor = fake_engine(max_num_seqs=slots, batching=batching, **asked)
    executor.reads = engine._check = copies == 1
    for number, output in enumerate(SEED * copies):
        engine.submit(Request(f"r{number}", [7], SamplingParams(max_tokens=output, ignore_eos=True)))
    return engine


def steps_and_ends(engine: Engine) -> tuple[int, list[int], list[Iteration]]:
    ends: dict[str, int] = {}
    records = []
    while engine.has_work():
        it = engine.step()
        assert it is not None
        records.append(it)
        ends.update({done.id: it.step for done in it.finished})
    return engine.step_count, [ends[f"r{n}"] for n in range(len(ends))], records


@pytest.mark.parametrize(
    ("slots", "static", "continuous"), [(8, 400, 400), (4, 610, 433), (2, 722, 553), (1, 795, 795)]
)
def test_steps_of_the_seed_example(slots: int, static: int, continuous: int) -> None:
    assert steps_and_ends(seeded(slots, "static"))[0] == static
    assert steps_and_ends(seeded(slots, "continuous"))[0] == continuous


def test_slot_steps_of_one_batch_of_eight() -> None:
    _, ends, records = steps_and_ends(seeded(8, "static"))
    assert sum(it.slots.total for it in records) == 3200
    assert sum(it.slots.used for it in records) == 795
    assert [400 - end for end in ends] == [380, 355, 190, 367, 392, 333, 0, 388]
    active: dict[int, int] = {}
    for it in records:
        active[it.slots.used] = active.get(it.slots.used, 0) + 1
    assert active == {8: 8, 7: 4, 6: 8, 5: 13, 4: 12, 3: 22, 2: 143, 1: 190}
    assert all(len(it.batch) == 8 for it in records)


def test_order_of_ends_when_slots_are_refilled() -> None:
    assert steps_and_ends(seeded(4, "continuous"))[1] == [20, 45, 210, 33, 28, 95, 433, 57]
    assert steps_and_ends(seeded(2, "continuous"))[1] == [20, 45, 230, 78, 86, 153, 553, 242]


@pytest.mark.parametrize(("copies", "static", "continuous"), [(10, 4000, 1232), (100, 40000, 10172)])
def test_gains_need_a_queue(copies: int, static: int, continuous: int) -> None:
    assert steps_and_ends(seeded(8, "static", copies))[0] == static
    assert steps_and_ends(seeded(8, "continuous", copies))[0] == continuous


@pytest.mark.parametrize(("prompt", "peak", "block_steps"), [(16, 30, 7836), (100, 56, 12000)])
def test_blocks_held(prompt: int, peak: int, block_steps: int) -> None:
    """COST-MODEL section 7 counts a request's tokens at its s-th step as prompt + s; here the s-th token is sampled
    with prompt + s - 1 of them computed, and prompts take one iteration: shift by one."""
    engine, _ = fake_engine(
        num_blocks=4096, max_num_seqs=8, max_num_batched_tokens=4096, batching="static", enable_prefix_caching=False
    )
    for number, output in enumerate(SEED):
        engine.submit(Request(f"r{number}", [7] * prompt, SamplingParams(max_tokens=output + 1, ignore_eos=True)))
    records = steps_and_ends(engine)[2]
    used = [4095 - it.free_blocks_mid for it in records[1:]]
    assert max(used) == peak
    assert sum(used) == block_steps


def test_a_batch_reads_all_prompts_before_it_decodes() -> None:
    engine, _ = fake_engine(batching="static", max_num_seqs=3, max_num_batched_tokens=16, num_blocks=64)
    for number, length in enumerate((30, 4, 10, 5)):
        engine.submit(Request(f"r{number}", list(range(length)), SamplingParams(max_tokens=4, ignore_eos=True)))
    out = run(engine)
    first = out.iterations[0]
    assert first.batch == ("r0", "r1", "r2") and first.slots.padding == 26 + 20
    assert sum(it.slots.padding for it in out.iterations) == 46
    tokens = [{token.id for token in it.tokens} for it in out.iterations]
    assert tokens[:3] == [set(), {"r0"}, {"r1", "r2"}], "44 prompt tokens in 16 + 16 + 12, nobody decodes meanwhile"
    assert tokens[3:6] == [{"r0", "r1", "r2"}] * 3
    held = {u.reason for it in out.iterations[:3] for u in it.unscheduled}
    assert Reason.STATIC_BATCH in held
    blocked = out.iterations[4].blocked
    assert blocked is not None and blocked.id == "r3" and blocked.reason is Reason.STATIC_BATCH


def test_switching_between_static_and_continuous() -> None:
    engine = seeded(4, "static")
    for _ in range(25):
        engine.step()
    assert len(engine.scheduler.running) == 3, "the slot of the one that ended stays empty"
    engine.set_knob("batching", "continuous")
    engine.step()
    assert len(engine.scheduler.running) == 4
    engine.set_knob("batching", "static")
    members = [request.id for request in engine.scheduler.running]
    it = engine.step()
    assert it is not None and list(it.batch) == members
    assert len(run(engine, view=False).token_ids) == 7, "all others end"


@pytest.mark.parametrize("asked", [
    {"num_blocks": 12, "block_size": 4, "max_model_len": 40},
    {"num_blocks": 12, "block_size": 4, "max_model_len": 40, "preemption_mode": "swap"},
    {"num_blocks": 12, "block_size": 4, "max_model_len": 40, "policy": "priority", "scheduler_reserve_full_isl": False},
    {"num_blocks": 40, "block_size": 4, "max_model_len": 60, "client_token_budget": 3},
    {"num_blocks": 40, "block_size": 4, "max_model_len": 60, "prefill_schedule_interval": 5},
])  # fmt: skip
def test_every_batch_ends_under_pressure(asked: dict[str, Any]) -> None:
    engine, _ = fake_engine(batching="static", max_num_seqs=4, max_num_batched_tokens=16, **asked)
    for number in range(13):
        prompt = [number] * (3 + number)
        params = SamplingParams(max_tokens=3 + number * 5 % 17, ignore_eos=True)
        engine.submit(Request(f"r{number}", prompt, params, priority=number % 3, client=f"c{number % 2}"))
    out = run(engine)
    assert len(out.token_ids) == 13 and all(out.token_ids.values())
    assert all(it.total_tokens <= it.budget for it in out.iterations)
    for earlier, later in zip(out.iterations, out.iterations[1:], strict=False):
        if earlier.batch != later.batch:
            left = set(earlier.running) | set(earlier.swapped)
            assert not left & set(earlier.batch), "a batch began before the last one had ended"


def test_a_limit_of_requests_a_minute_holds_for_batches_too() -> None:
    engine, _ = fake_engine(batching="static", policy="rpm", requests_per_minute=2, max_num_seqs=4)
    for number in range(6):
        prompt = [number] * (5 if number == 1 else 30 + number)
        engine.submit(Request(f"r{number}", prompt, SamplingParams(max_tokens=2, ignore_eos=True)))
    it = engine.step()
    assert it is not None and it.running == it.batch == ("r0", "r1")
    assert it.blocked is not None and it.blocked.reason is Reason.POLICY
    assert it.slots.padding == 25, "of those that are in the batch"


def test_swapped_out_requests_are_members_when_batching_becomes_static() -> None:
    engine, _ = fake_engine(
        num_blocks=12, block_size=4, max_model_len=40, max_num_seqs=4, max_num_batched_tokens=16,
        preemption_mode="swap", scheduler_reserve_full_isl=False,
    )  # fmt: skip
    for number in range(6):
        engine.submit(Request(f"r{number}", [number] * 8, SamplingParams(max_tokens=20, ignore_eos=True)))
    while not engine.scheduler.swapped:
        engine.step()
    engine.set_knob("batching", "static")
    members = {request.id for request in (*engine.scheduler.running, *engine.scheduler.swapped)}
    while engine.scheduler.batch.alive:
        it = engine.step()
        assert it is not None and set(it.running) <= members | set(it.batch)
        if set(it.batch) != members:
            break
    assert not members & set(engine.scheduler.requests), "a new batch begins when all of the old one have ended"
    run(engine, view=False)
