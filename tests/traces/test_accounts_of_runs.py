"""Accounts and summary of whole runs of the engine, against sums over what the records say was done."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.clock import ManualClock
from engine.host import EngineInfo
from engine.plan import Plan
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine
from traces.clients import ClientAccounts
from traces.metrics import Metrics
from traces.stats import COMPLETED

SEEDS = st.integers(0, 1 << 30)


def crowd(seed: int, count: int = 12) -> list[Request]:
    """Requests of three clients, many of them with a common beginning, within a few iterations."""
    draw = random.Random(seed)
    beginning = [draw.randrange(200) for _ in range(16)]
    requests = []
    for number in range(count):
        own = [draw.randrange(200) for _ in range(draw.randint(1, 14))]
        requests.append(
            Request(
                f"r{number}",
                beginning[: draw.choice((0, 8, 16))] + own,
                SamplingParams(max_tokens=draw.randint(1, 12), ignore_eos=True),
                client=draw.choice("abc"),
                priority=draw.randint(-1, 1),
                arrival=draw.random() * 5,
                deadline=draw.choice((None, 2.0)),
            )
        )
    return requests


class Run:
    """A run in which an iteration takes a second. `records` of it all, `peak` of the blocks held by requests."""

    def __init__(self, requests: list[Request], aborts: int = 0, shrink_to: int = 0, **knobs: Any) -> None:
        """aborts: how many requests are aborted on the way. shrink_to: num_blocks from the tenth record on."""
        clock = ManualClock()
        given = {"block_size": 4, "max_num_batched_tokens": 16, "max_num_seqs": 4, **knobs}
        engine, executor = fake_engine(clock, **given)
        self.info = EngineInfo("fake", "cpu", "none", 1, engine.config, 256, 0, 0)
        self.records: list[Iteration] = []
        self.peak = 0

        def hook(plan: Plan) -> None:
            clock.advance(1.0)
            held = {block for request in engine.scheduler.requests.values() for block in request.block_table}
            self.peak = max(self.peak, len(held))

        executor.hook = hook
        for request in requests:
            engine.submit(request)
        victims = [request.id for request in requests][:aborts]
        for _ in range(5000):
            if not engine.has_work():
                return
            if victims and len(self.records) % 4 == 3:
                engine.abort(victims.pop())
            if shrink_to and len(self.records) == 10:
                engine.try_knob("num_blocks", shrink_to)
            it = engine.step()
            if it is not None:
                self.records.append(it)
                continue
            due = engine.next_event()
            assert due is not None, "the engine has work and does nothing"
            clock.advance(max(0.0, due - clock.now()))
        raise AssertionError("no end")


def run(requests: list[Request], aborts: int = 0, **knobs: Any) -> list[Iteration]:
    return Run(requests, aborts, **knobs).records


def accounts_of(records: list[Iteration], **options: Any) -> ClientAccounts:
    accounts = ClientAccounts(**options)
    for it in records:
        accounts.add(it)
    return accounts


def cost(records: list[Iteration], requests: list[Request]) -> Counter[str]:
    """Units by client: prompt positions that were computed when they were first there, and twice the sampled tokens.

    A position that came from the prefix cache costs nothing, also when it is computed after a preemption.
    """
    who = {request.id: request for request in requests}
    there: dict[str, set[int]] = {id: set() for id in who}
    units: Counter[str] = Counter()
    for it in records:
        for item in it.scheduled:
            request, upto = who[item.id], item.computed_before + item.num_tokens
            there[item.id] |= set(range(item.computed_before))
            new = set(range(item.computed_before, min(upto, request.num_prompt))) - there[item.id]
            units[request.client] += len(new)
            there[item.id] |= new
        for token in it.tokens:
            units[who[token.id].client] += 2
    return units


@given(SEEDS, st.sampled_from((14, 20, 200)), st.booleans(), st.integers(0, 3))
@example(219404, 14, True, 1)  # cached at first, computed after a preemption
@settings(max_examples=60, deadline=None)
def test_service_is_what_was_computed_once(seed: int, num_blocks: int, caching: bool, aborts: int) -> None:
    requests = crowd(seed)
    records = run(requests, aborts, num_blocks=num_blocks, enable_prefix_caching=caching)
    accounts = accounts_of(records)
    units = cost(records, requests)
    assert {name: client.service for name, client in accounts.clients.items() if client.service} == dict(+units)
    assert not accounts.live and all(client.outstanding == 0 for client in accounts.clients.values())
    assert not any(client.queue for client in accounts.clients.values())
    for name, account in accounts.summary().items():
        assert account["demand"] == account["service"]
        ended = [done for it in records for done in it.finished if done.client == name]
        assert account["preemptions"]["suffered"] == sum(done.preemptions for done in ended)
        assert account["tokens"]["recomputed"] == sum(done.recomputed_tokens for done in ended)
        assert account["requests"]["completed"] == sum(done.reason in COMPLETED for done in ended)
        assert account["deadlines"]["met"] + account["deadlines"]["missed"] == sum(
            request.deadline is not None for request in requests if request.client == name
        )


@given(SEEDS, st.booleans(), st.sampled_from(("recompute", "swap")))
@settings(max_examples=40, deadline=None)
def test_preemptions_do_not_change_what_a_client_got(seed: int, caching: bool, mode: str) -> None:
    """Cached tokens count, so that hits, which depend on the order, make no difference."""
    narrow = run(crowd(seed), num_blocks=12, enable_prefix_caching=caching, preemption_mode=mode)
    wide = run(crowd(seed), num_blocks=400, enable_prefix_caching=caching)
    assert not any(it.preempted for it in wide)
    got = [accounts_of(records, count_cached=True) for records in (narrow, wide)]
    services = [{name: client.service for name, client in accounts.clients.items()} for accounts in got]
    asked: Counter[str] = Counter()
    for request in crowd(seed):
        asked[request.client] += request.num_prompt + 2 * (request.params.max_tokens or 0)
    assert services[0] == services[1] == dict(asked)


def test_these_runs_are_preempted() -> None:
    for mode in ("recompute", "swap"):
        records = [it for seed in range(10) for it in run(crowd(seed), num_blocks=12, preemption_mode=mode)]
        swaps = [victim.swapped_blocks > 0 for it in records for victim in it.preempted]
        assert len(swaps) > 10 and any(swaps) is (mode == "swap")


@given(
    SEEDS, st.sampled_from(("recompute", "swap")), st.sampled_from(("continuous", "static")), st.sampled_from((0, 9))
)
@settings(max_examples=60, deadline=None)
def test_summary_of_a_run_adds_up(seed: int, mode: str, batching: str, shrink_to: int) -> None:
    done = Run(crowd(seed), shrink_to=shrink_to, num_blocks=12, preemption_mode=mode, batching=batching)
    metrics = Metrics(done.info)
    rows = [row for it in done.records for row in metrics.add(it)]
    summary = metrics.summary()
    cost, clients = summary["preemption"], summary["clients"].values()
    assert (
        summary["preemptions"] == cost["recompute"]["count"] + cost["swap"]["count"] == sum(cost["by_cause"].values())
    )
    assert summary["preemptions"] == sum(row.preemptions for row in rows)
    assert cost["swap"]["count"] == sum(row.swapped_out for row in rows)
    assert cost["swap"]["blocks_out"] == sum(row.swapped_blocks for row in rows)
    assert cost["swap"]["blocks_in"] <= cost["swap"]["blocks_out"]
    assert sum(account["share"] or 0 for account in clients) == pytest.approx(1, abs=1e-5)
    assert sum(account["tokens"]["output"] for account in clients) == summary["tokens"]["output"]
    assert sum(account["ttft_s"]["n"] for account in clients) == summary["ttft_s"]["n"]
    assert summary["fairness"]["jain"] in (None, 1.0)  # everybody got everything
    assert summary["starvation"]["seconds"] == max(account["max_queue_age_s"] for account in clients)
    assert summary["kv"]["peak_used"] == done.peak and summary["kv"]["allocated"] == 12
    slots = summary["slot_steps"]
    assert slots["used"] == summary["tokens"]["output"]  # a step of a slot gives a token or none
    assert slots["total"] == slots["used"] + slots["wasted"] == sum(it.slots.total for it in done.records)
    assert slots["total"] >= 4 * summary["iterations"] or batching == "static"
    assert slots["padding"] == 0 or batching == "static"
