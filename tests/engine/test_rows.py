"""`BatchRows.pack` against the obvious loop over tokens, on the plans of a real scheduler."""

from __future__ import annotations

import random

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.executors.rows import BatchRows
from engine.plan import Draft, Plan
from engine.records import Kind
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.scheduler import Scheduler
from tests.engine.test_scheduler import finish


def check(rows: BatchRows, plan: Plan, multiple: int, size: int) -> None:
    items = plan.items
    packed = rows.pack(plan, multiple)
    assert packed.ends == [item.start + item.num_tokens for item in items]
    assert packed.sampling == [place for place, item in enumerate(items) if item.samples]
    total = sum(item.num_tokens for item in items)
    assert len(packed.ids) == len(packed.positions) == len(packed.slots) == -(-total // multiple) * multiple
    assert packed.starts == [item.start for item in items]
    at = 0
    for row, item in enumerate(items):
        table = item.request.block_table
        assert packed.offsets[row] == at
        for position in range(item.start, item.start + item.num_tokens):
            assert packed.ids[at] == item.request.token_ids[position]
            assert packed.positions[at] == position
            assert packed.slots[at] == table[position // size] * size + position % size
            at += 1
        assert packed.tables[row, : len(table)].tolist() == table
        assert not packed.tables[row, len(table) :].any()
    assert packed.offsets[-1] == total == at
    for array in (packed.ids, packed.positions, packed.slots):
        assert array.dtype == np.int64 and not array[total:].any()


@pytest.mark.parametrize("size", [1, 3, 16])
@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_pack(size: int, policy: str) -> None:
    """Random arrivals, preemptions, aborts and reused rows; rows start at 1, so they grow as well."""
    rng = random.Random(size)
    config = EngineConfig.resolve(
        {"num_blocks": 1 + -(-90 // size), "block_size": size, "max_model_len": 90, "max_num_batched_tokens": 40,
         "max_num_seqs": 8, "policy": policy, "scheduler_reserve_full_isl": False}
    )  # fmt: skip
    scheduler, rows = Scheduler(config), BatchRows(90, size, rows=1)
    preempted, most = 0, 0
    for step in range(250):
        if rng.random() < 0.5 or step < 8:
            length = rng.choice([1, 2, size, size + 1, 30])
            prompt = [rng.randrange(1, 9) for _ in range(min(length, 40))]
            params = SamplingParams(max_tokens=rng.randrange(1, 30))
            scheduler.add(Request(str(step), prompt, params, priority=rng.randrange(3), arrival=float(step)))
        if scheduler.requests and rng.random() < 0.1:
            id = rng.choice(list(scheduler.requests))
            scheduler.abort(id)
            rows.release(id)
        plan = scheduler.schedule()
        for victim in plan.preempted:
            rows.release(victim.id)
        preempted += len(plan.preempted)
        if not plan.items:
            continue
        most = max(most, len(plan.items))
        check(rows, plan, rng.choice([1, 16]), size)
        sampled = [rng.randrange(1, 9) if item.samples else None for item in plan.items]
        rows.append(
            [place for place, token in enumerate(sampled) if token is not None],
            [token for token in sampled if token is not None],
        )

        for request in finish(scheduler, plan, sampled):
            rows.release(request.id)
    assert preempted > 0 and most > 2


def test_release_of_unknown_and_twice() -> None:
    rows = BatchRows(10, 4, rows=1)
    rows.release("nobody")
    request = Request("a", [1, 2])
    request.block_table = [1]
    check(rows, plan_of(request), 1, 4)
    rows.release("a")
    rows.release("a")
    other = Request("b", [3])
    other.block_table = [2]
    again = Request("c", [4])
    again.block_table = [3]
    check(rows, plan_of(other, again), 1, 4)


def plan_of(*requests: Request) -> Plan:
    """All of each request."""
    plan = Plan()
    for request in requests:
        Draft(plan, 100, 0, False, 0).give(request, request.num_tokens, 0, Kind.NEW, request.block_table)
    plan.num_tokens = sum(request.num_tokens for request in requests)
    return plan
