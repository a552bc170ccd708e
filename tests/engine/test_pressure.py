"""Under pressure for blocks, whatever the policy, the victim and the way of preempting: same tokens, everybody ends.

The fake executor notices K/V that is foreign, stale or was never copied back (see `fakes`).
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from engine.clock import ManualClock
from engine.engine import Engine
from engine.knobs import POLICY_NAMES, VICTIM_NAMES
from engine.records import Cause, Iteration, Kind, Reason
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine, made_up
from tests.engine.harness import run, submit_all, tiny_engine


def crowd(engine: Engine, clock: ManualClock, count: int, seed: int) -> dict[str, int]:
    """Requests of three clients over some seconds; id -> tokens they are to get."""
    rng = random.Random(seed)
    wanted = {}
    for number in range(count):
        prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 40))]
        wanted[f"r{number}"] = rng.randrange(1, 30)
        engine.submit(
            Request(
                f"r{number}", prompt, SamplingParams(max_tokens=wanted[f"r{number}"], ignore_eos=True),
                client="abc"[number % 3], priority=rng.randrange(3), arrival=clock.now() + rng.random() * count / 20,
                deadline=rng.choice([None, 0.5, 2.0]),
            )
        )  # fmt: skip
    return wanted


def drive(engine: Engine, clock: ManualClock, **hooks: Any) -> list[Iteration]:
    def before(step: int) -> None:
        clock.advance(0.02)
        event = engine.next_event()
        if not engine.scheduler.running and event is not None and event > clock.now():
            clock.advance(event - clock.now())
        for call in hooks.values():
            call(step)

    out = run(engine, before)
    for id, tokens in out.token_ids.items():
        start = out.view.requests[id].prompt_len
        assert tokens == [made_up(id, start + n) for n in range(len(tokens))], "another token than with ample blocks"
    return out.iterations


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("policy", POLICY_NAMES)
def test_every_policy(policy: str, mode: str) -> None:
    clock = ManualClock()
    engine, _ = fake_engine(
        clock, num_blocks=30, block_size=4, max_model_len=80, max_num_batched_tokens=32, max_num_seqs=8,
        policy=policy, preemption_mode=mode, num_cpu_blocks=40, scheduler_reserve_full_isl=False,
        requests_per_minute=1000, aging=1 if policy in ("srpt", "sjf") else None,
    )  # fmt: skip
    wanted = crowd(engine, clock, 60, 4)
    records = drive(engine, clock)
    done = {end.id: end for it in records for end in it.finished}
    assert {id: end.output_len for id, end in done.items()} == wanted
    assert {end.reason for end in done.values()} == {FinishReason.LENGTH}
    preempted = [victim for it in records for victim in it.preempted]
    assert len(preempted) > 5, "no pressure: the test shows nothing"
    swapped = [victim for victim in preempted if victim.swapped_blocks]
    back = sum(item.kind is Kind.SWAPPED_IN for it in records for item in it.scheduled)
    if mode == "swap":
        assert len(swapped) > 5 and back == len(swapped)
        assert sum(it.copied.out_blocks for it in records) == sum(victim.swapped_blocks for victim in swapped)
        assert all(not (it.copied.out_blocks and it.copied.in_blocks) for it in records), "in and out in one iteration"
    else:
        assert not swapped and not back and sum(s.recomputed for it in records for s in it.scheduled) > 0
    if policy == "srpt" or (policy == "mlfq" and mode == "swap"):
        assert any(victim.cause is Cause.DISPLACED for victim in preempted)


@pytest.mark.parametrize("victim", VICTIM_NAMES)
def test_every_victim_rule(victim: str) -> None:
    clock = ManualClock()
    engine, _ = fake_engine(
        clock, num_blocks=24, block_size=4, max_model_len=80, max_num_batched_tokens=32, max_num_seqs=8,
        victim=victim, scheduler_reserve_full_isl=False,
    )  # fmt: skip
    wanted = crowd(engine, clock, 40, 9)
    oldest_evicted = 0

    records = drive(engine, clock)
    arrivals = {arrived.id: (arrived.arrival, arrived.id) for it in records for arrived in it.arrived}
    for before, it in pairwise(records):
        for gone in it.preempted:
            alive = [id for id in before.running if id in arrivals]
            if len(alive) > 1 and gone.id == min(alive, key=arrivals.__getitem__):
                oldest_evicted += 1
    assert {end.id: end.output_len for it in records for end in it.finished} == wanted
    assert sum(len(it.preempted) for it in records) > 5
    assert victim == "auto" or not oldest_evicted, "the oldest one is protected outside vLLM's settings"


def test_swap_pool_full_falls_back_to_recompute() -> None:
    clock = ManualClock()
    engine, _ = fake_engine(
        clock, num_blocks=30, block_size=4, max_model_len=80, max_num_batched_tokens=32, max_num_seqs=8,
        preemption_mode="swap", num_cpu_blocks=5, scheduler_reserve_full_isl=False,
    )  # fmt: skip
    crowd(engine, clock, 60, 4)
    preempted = [victim for it in drive(engine, clock) for victim in it.preempted]
    assert any(victim.swapped_blocks for victim in preempted)
    assert any(not victim.swapped_blocks and victim.lost_tokens for victim in preempted)


def test_swapped_ones_come_before_waiting_ones() -> None:
    clock = ManualClock()
    engine, _ = fake_engine(
        clock, num_blocks=30, block_size=4, max_model_len=80, max_num_batched_tokens=32, max_num_seqs=8,
        preemption_mode="swap", num_cpu_blocks=100, scheduler_reserve_full_isl=False,
    )  # fmt: skip
    crowd(engine, clock, 60, 4)
    records = drive(engine, clock)
    for it in records:
        if it.swapped:
            assert not any(item.kind in (Kind.NEW, Kind.RESUMED) for item in it.scheduled)
            assert it.blocked is not None and it.blocked.id == it.swapped[0]
    assert any(it.swapped and it.num_waiting for it in records)


@pytest.mark.parametrize("mode", ["recompute", "swap"])
@pytest.mark.parametrize("caching", [True, False])
def test_the_pool_shrinks_and_grows(mode: str, caching: bool) -> None:
    clock = ManualClock()
    engine, _ = fake_engine(
        clock, num_blocks=60, block_size=4, max_num_batched_tokens=64, max_num_seqs=10, preemption_mode=mode,
        num_cpu_blocks=100, enable_prefix_caching=caching,
    )  # fmt: skip
    wanted = crowd(engine, clock, 80, 2)
    sizes = {20: 20, 40: 60, 60: 8, 90: 45, 110: 3, 130: 60}

    def turn(step: int) -> None:
        if step in sizes:
            engine.set_knob("num_blocks", sizes.pop(step))

    records = drive(engine, clock, turn=turn)
    assert not sizes
    causes = [victim.cause for it in records for victim in it.preempted]
    assert causes.count(Cause.SHRINK) >= 2
    ends = {end.id: end for it in records for end in it.finished}
    cut = [end for end in ends.values() if end.output_len < wanted[end.id]]
    refused = {refused.id for it in records for refused in it.rejected}
    assert set(ends) | refused == set(wanted) and not set(ends) & refused
    assert cut and all("KV blocks" in end.detail for end in cut), "who outgrows the pool ends with the reason"
    assert {end.reason for end in cut} <= {FinishReason.LENGTH, FinishReason.ERROR}
    assert engine.scheduler.pool.num_usable == 59


def test_shrinking_preempts_just_enough() -> None:
    engine, _ = fake_engine(num_blocks=33, block_size=4, max_num_batched_tokens=64, enable_prefix_caching=False)
    for number in range(4):
        engine.submit(Request(f"r{number}", [number] * 16, SamplingParams(max_tokens=9, ignore_eos=True)))
    engine.step()
    assert engine.scheduler.pool.num_free == 16
    engine.set_knob("num_blocks", 21)  # each of the four takes its fifth block now
    it = engine.step()
    assert it is not None and not it.preempted and it.off_blocks == 12
    engine.set_knob("num_blocks", 33)
    it = engine.step()
    assert it is not None and it.off_blocks == 0
    engine.set_knob("num_blocks", 16)  # 20 blocks are in use: one request must go, 5 of its blocks suffice
    it = engine.step()
    assert it is not None and [victim.id for victim in it.preempted] == ["r3"]
    assert it.preempted[0].cause is Cause.SHRINK and it.preempted[0].by == ""
    assert it.blocked is not None and it.blocked.reason is Reason.PREEMPTION
    with pytest.raises(Exception, match="33 blocks that are allocated"):
        engine.set_knob("num_blocks", 34)


def test_an_idle_pool_shrinks_at_once() -> None:
    engine, _ = fake_engine(num_blocks=33)
    engine.set_knob("num_blocks", 9)
    it = engine.step()
    assert it is not None and it.off_blocks == 24 and it.free_blocks == 8 and it.knobs[0].name == "num_blocks"
    engine.submit(Request("r0", [1] * 129))
    it = engine.step()
    assert it is not None and "the pool has 8" in it.rejected[0].reason


def test_one_client_cannot_take_the_budget() -> None:
    engine, _ = fake_engine(
        num_blocks=200, block_size=4, max_num_batched_tokens=32, client_token_budget=8, enable_prefix_caching=False
    )
    for number in range(4):
        engine.submit(Request(f"a{number}", [1] * 20, SamplingParams(max_tokens=4, ignore_eos=True), client="a"))
    engine.submit(Request("b0", [2] * 6, SamplingParams(max_tokens=4, ignore_eos=True), client="b"))
    out = run(engine)
    for it in out.iterations:
        spent: dict[str, int] = {}
        for item in it.scheduled:
            spent[item.id[0]] = spent.get(item.id[0], 0) + item.num_tokens
        assert all(tokens <= 8 for tokens in spent.values())
    assert {item.id for item in out.iterations[0].scheduled} == {"a0", "b0"}, "b goes past the exhausted client"
    assert Reason.CLIENT_BUDGET in {it.blocked.reason for it in out.iterations if it.blocked}


def test_reserved_output_never_preempts() -> None:
    clock = ManualClock()
    for reserve in (False, True):
        engine, _ = fake_engine(
            clock, num_blocks=24, block_size=4, max_model_len=80, max_num_batched_tokens=32, reserve_output=reserve
        )
        wanted = crowd(engine, clock, 40, 9)
        records = drive(engine, clock)
        assert {end.id: end.output_len for it in records for end in it.finished} == wanted
        assert bool(sum(len(it.preempted) for it in records)) == (not reserve)


@pytest.mark.parametrize("policy", ["fcfs", "srpt", "fair"])
@pytest.mark.parametrize("caching", [True, False])
def test_swapped_kv_of_the_real_model_comes_back_as_it_was(policy: str, caching: bool) -> None:
    """Greedy tokens of the tiny model with room for all, and with most requests swapped out in between."""
    rng = random.Random(3)
    prompts = [[rng.randrange(256) for _ in range(rng.randrange(8, 60))] for _ in range(12)]
    params = SamplingParams(max_tokens=24, ignore_eos=True)
    ample = tiny_engine(num_blocks=512)
    ids = submit_all(ample, prompts, params)
    expected = run(ample).token_ids
    tight = tiny_engine(
        num_blocks=12, max_model_len=96, preemption_mode="swap", policy=policy, scheduler_reserve_full_isl=False,
        enable_prefix_caching=caching, max_num_batched_tokens=64,
    )  # fmt: skip
    submit_all(tight, prompts, params)
    out = run(tight)
    assert sum(bool(victim.swapped_blocks) for it in out.iterations for victim in it.preempted) >= 4
    assert sum(it.copied.num_bytes for it in out.iterations) > 0
    assert {id: out.token_ids[id] for id in ids} == expected
    assert sum(item.recomputed for it in out.iterations for item in it.scheduled) == 0


def test_a_client_without_budget_hides_nobody() -> None:
    """However many of its requests are in front."""
    engine, _ = fake_engine(num_blocks=400, block_size=4, client_token_budget=2, max_num_seqs=8)
    for number in range(200):
        engine.submit(Request(f"a{number}", [1, 2, 3], SamplingParams(max_tokens=20, ignore_eos=True), client="a"))
    engine.submit(Request("b", [4, 5], SamplingParams(max_tokens=3, ignore_eos=True), client="b"))
    ends = {}
    for _ in range(6):
        it = engine.step()
        assert it is not None
        ends.update({end.id: it.step for end in it.finished})
    assert ends["b"] == 3


def displacements(engine: Engine, steps: int) -> list[str]:
    out = []
    for _ in range(steps):
        it = engine.step()
        if it is not None:
            out += [victim.id for victim in it.preempted if victim.cause is Cause.DISPLACED]
            if out:
                assert any(item.kind is not Kind.RUNNING for item in it.scheduled), "displaced, and nobody came"
                return out
    return out


def test_nobody_is_displaced_for_one_who_may_not_start() -> None:
    """Neither for lack of its client's budget, nor of the iteration's, nor while prompts are in one piece."""
    engine, _ = fake_engine(policy="srpt", max_num_seqs=2, client_token_budget=1, num_blocks=400)
    for id, client, output in (("x1", "x", 50), ("y1", "y", 90), ("x2", "x", 2)):
        engine.submit(Request(id, [1], SamplingParams(max_tokens=output, ignore_eos=True), client=client))
    assert displacements(engine, 40) == []
    engine, _ = fake_engine(policy="srpt", max_num_seqs=2, max_num_batched_tokens=8, num_blocks=400)
    engine.submit(Request("long", [1] * 400, SamplingParams(max_tokens=40, ignore_eos=True)))
    engine.step()
    engine.submit(Request("running", [2], SamplingParams(max_tokens=200, ignore_eos=True)))
    engine.submit(Request("short", [3], SamplingParams(max_tokens=2, ignore_eos=True)))
    displacements(engine, 100)


def test_a_block_of_the_victim_is_not_counted_twice() -> None:
    """Once as freed and once as a hit of who comes."""
    engine, _ = fake_engine(
        policy="srpt", num_blocks=13, block_size=4, max_model_len=44, max_num_seqs=4, max_num_batched_tokens=64
    )
    prompt = list(range(16))
    engine.submit(Request("other", [99] * 16, SamplingParams(max_tokens=8, ignore_eos=True)))
    engine.submit(Request("victim", prompt, SamplingParams(max_tokens=28, ignore_eos=True)))
    engine.step()
    engine.submit(Request("head", prompt + [7] * 22, SamplingParams(max_tokens=2, ignore_eos=True)))
    displacements(engine, 30)


@pytest.mark.parametrize("policy", ["edf", "slack", "lcf", "lpm"])
def test_nobody_starves(policy: str) -> None:
    """A request that the policy would never choose is first after a minute."""
    clock = ManualClock()
    engine, _ = fake_engine(clock, policy=policy, max_num_seqs=1, num_blocks=200)
    shared = list(range(40))
    engine.submit(Request("busy", shared, SamplingParams(max_tokens=2, ignore_eos=True), client="a", deadline=0.1))
    for _ in range(60):  # lcf: the client of the one who waits has had much
        engine.submit(Request(f"p{_}", [1], SamplingParams(max_tokens=30, ignore_eos=True), client="z", deadline=0.1))
    while engine.has_work():
        engine.step()
    engine.submit(Request("poor", [9] * 40, SamplingParams(max_tokens=2, ignore_eos=True), client="z"))
    served, number = None, 0
    while served is None:
        for _ in range(2):
            number += 1
            params = SamplingParams(max_tokens=2, ignore_eos=True)
            engine.submit(Request(f"r{number}", [*shared, number % 7], params, client="a", deadline=0.1))
        clock.advance(1.0)
        it = engine.step()
        assert it is not None and number < 500, "starved"
        if any(item.id == "poor" for item in it.scheduled):
            served = clock.now()
    assert served > 30, "the policy would serve it anyway: the test shows nothing"
    assert served < 70


def test_the_order_of_joining_survives_a_change_of_policy() -> None:
    engine, _ = fake_engine(max_num_seqs=1)
    for number in range(13):
        engine.submit(Request(f"r{number}", [number], SamplingParams(max_tokens=2, ignore_eos=True)))
    for policy in ("fair", "lpm", "sjf", "priority", "fcfs"):
        engine.set_knob("policy", policy)
    assert [request.id for request in engine.scheduler.waiting] == [f"r{number}" for number in range(13)]


def test_alone_ends_with_the_request_that_was_alone() -> None:
    engine, _ = fake_engine(max_num_seqs=4)
    for number in range(6):
        engine.submit(Request(f"r{number}", [number], SamplingParams(max_tokens=50, ignore_eos=True)))
    engine.scheduler.solo = True
    engine.step()
    assert len(engine.scheduler.running) == 1
    engine.abort("r0")
    engine.step()
    assert len(engine.scheduler.running) == 4


def test_displaced_ones_do_not_take_turns_for_ever() -> None:
    """Levels of one token, prompts read a token at a time, everybody waits long enough to be promoted."""
    clock = ManualClock()
    engine, _ = fake_engine(
        clock, policy="mlfq", mlfq_quantum=1, aging=0.01, num_blocks=13, block_size=4, max_model_len=48, watermark=0.9,
        max_num_seqs=2, max_num_batched_tokens=8, long_prefill_token_threshold=1, enable_prefix_caching=False,
    )  # fmt: skip
    for number in range(12):
        params = SamplingParams(max_tokens=3, ignore_eos=True)
        engine.submit(Request(f"r{number}", [number] * (10 + 3 * number), params))
    needed = sum(10 + 3 * number + 2 for number in range(12))
    computed = displaced = 0
    while engine.has_work():
        clock.advance(0.002)
        it = engine.step()
        assert it is not None
        computed += it.total_tokens
        displaced += sum(victim.cause is Cause.DISPLACED for victim in it.preempted)
        assert computed < 3 * needed, "most of the work is done again and again"
    assert displaced > 3
