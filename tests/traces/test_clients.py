"""Accounts of clients, on records made by hand, and against what random runs of the engine computed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from engine.records import Cause, Iteration, Kind, KnobChange, Preempted, Rebuilt, Rejected
from engine.request import FinishReason
from tests.traces.records import arrived, finished, record, scheduled, token
from traces.clients import ClientAccounts, Starvation


def folded(*records: Iteration, accounts: ClientAccounts | None = None) -> ClientAccounts:
    accounts = accounts or ClientAccounts()
    for it in records:
        accounts.add(it)
    return accounts


def new(*ids: str, tokens: int = 4, before: int = 0) -> tuple[Any, ...]:
    return tuple(scheduled(id, tokens, before=before, kind=Kind.NEW) for id in ids)


def preempted(id: str, by: str, cause: Cause = Cause.BLOCKS) -> Preempted:
    return Preempted(id, by, 1, 0, 4, 1, cause)


def test_two_clients_by_hand() -> None:
    accounts = folded(
        record(0, 0, 1, arrived=(arrived("a1", 0.0, 6, client="ann"), arrived("b1", 0.5, 3, client="bob")),
               scheduled=new("a1", tokens=4)),
        record(1, 1, 2, scheduled=(scheduled("a1", 2, before=4), *new("b1", tokens=3)),
               tokens=(token("a1"), token("b1"))),
        record(2, 2, 4, scheduled=(scheduled("a1", before=6), scheduled("b1", before=3)),
               tokens=(token("a1"), token("b1")), finished=(finished("b1", client="bob"),)),
    )  # fmt: skip
    summary = accounts.summary()
    ann, bob = summary["ann"], summary["bob"]
    assert (ann["service"], bob["service"]) == (6 + 2 * 2, 3 + 2 * 2)
    assert (ann["share"], bob["share"]) == (round(10 / 17, 6), round(7 / 17, 6))
    # ann's request may get 8 tokens and has 2; bob's ended with what it got.
    assert (ann["demand"], bob["demand"]) == (6 + 2 * 8, 7)
    assert ann["tokens"] == {"prompt": 6, "cached": 0, "output": 2, "recomputed": 0}
    assert bob["ttft_s"]["mean"] == 1.5 and bob["itl_s"]["p50"] == 2.0 and bob["queue_s"]["mean"] == 0.5
    assert ann["ttft_s"]["n"] == 0  # not completed
    assert bob["requests"] == {"arrived": 1, "completed": 1, "rejected": 0, "failed": 0, "aborted": 0}
    assert (ann["max_queue_age_s"], bob["max_queue_age_s"], bob["queue_age_s"]) == (0.0, 0.5, None)
    assert set(accounts.live) == {"a1"}
    json.dumps([summary, accounts.fairness()], allow_nan=False)


def test_weights_of_the_unit() -> None:
    records = (record(0, 0, 1, arrived=(arrived("a", 0.0, 4),), scheduled=new("a"), tokens=(token("a"),)),)
    assert folded(*records).total_service == 4 + 2
    assert folded(*records, accounts=ClientAccounts(w_p=0.5, w_q=10.0)).total_service == 2 + 10


@pytest.mark.parametrize(("counted", "service"), [(False, 4 + 2), (True, 12 + 2)])
def test_cached_prompt_tokens_by_a_switch(counted: bool, service: int) -> None:
    it = record(0, 0, 1, arrived=(arrived("a", 0.0, 12, max_tokens=1),), scheduled=new("a", before=8),
                tokens=(token("a"),))  # fmt: skip
    by_argument = folded(it, accounts=ClientAccounts(count_cached=counted))
    by_knob = folded(it, accounts=ClientAccounts({"count_cached_tokens": counted}))
    change = record(0, 0, 0, knobs=(KnobChange("count_cached_tokens", not counted, counted, 1),))
    live = folded(change, it, accounts=ClientAccounts({"count_cached_tokens": not counted}))
    overruled = folded(change, it, accounts=ClientAccounts(count_cached=not counted))
    for accounts in (by_argument, by_knob, live):
        assert accounts.summary()["default"]["service"] == accounts.summary()["default"]["demand"] == service
        assert accounts.summary()["default"]["tokens"]["cached"] == 8
        assert accounts.fairness()["count_cached"] is counted
    assert overruled.total_service != service


def test_recomputed_and_swapped_tokens_are_no_service() -> None:
    """A prompt of 8: 6 are computed, thrown away, computed again by way of 4 hits; then swapped out and back."""
    accounts = folded(
        record(0, 0, 1, arrived=(arrived("a", 0.0, 8), arrived("b", 0.0, 4)), scheduled=new("a", tokens=6)),
        record(1, 1, 2, preempted=(preempted("a", "b"),), scheduled=new("b"), tokens=(token("b"),)),
        record(2, 2, 3, scheduled=(scheduled("a", 3, before=4, recomputed=2, kind=Kind.RESUMED),)),
        record(3, 3, 4, preempted=(preempted("a", "b")._replace(lost_tokens=0, swapped_blocks=2),)),
        record(4, 4, 5, scheduled=(scheduled("a", 1, before=7, kind=Kind.SWAPPED_IN),), tokens=(token("a"),)),
    )
    account = accounts.summary()["default"]
    assert account["service"] == 8 + 2 + 4 + 2
    assert account["tokens"] == {"prompt": 12, "cached": 0, "output": 2, "recomputed": 2}
    assert account["preemptions"] == {"suffered": 2, "caused": 2}  # its own b pushed its own a out


def test_hits_beyond_what_was_lost_are_cached_tokens() -> None:
    """Preempted after 4 of 12, it comes back to 8 that another request has put into the cache."""
    records = (
        record(0, 0, 1, arrived=(arrived("a", 0.0, 12),), scheduled=new("a", tokens=4)),
        record(1, 1, 2, preempted=(preempted("a", ""),)),
        record(2, 2, 3, scheduled=(scheduled("a", 4, before=8, kind=Kind.RESUMED),), tokens=(token("a"),)),
    )
    assert folded(*records).total_service == 8 + 2
    assert folded(*records).summary()["default"]["tokens"]["cached"] == 4
    assert folded(*records, accounts=ClientAccounts(count_cached=True)).total_service == 12 + 2


def test_who_causes_a_preemption() -> None:
    accounts = folded(
        record(0, 0, 1, arrived=tuple(arrived(id, 0.0, client=id) for id in "abc"), scheduled=new("a", "b", "c")),
        record(1, 1, 2, preempted=(
            preempted("b", "a"), preempted("c", "c"), preempted("a", "", Cause.SHRINK),
        )),
        record(2, 2, 3, scheduled=(scheduled("b", kind=Kind.RESUMED),)),
        record(3, 3, 4, rebuilt=Rebuilt("m", "float32", 8, 4, ()), preempted=(preempted("b", "", Cause.REBUILD),),
               scheduled=(scheduled("b", kind=Kind.RESUMED),)),
    )  # fmt: skip
    counts = {name: account["preemptions"] for name, account in accounts.summary().items()}
    assert counts["a"] == {"suffered": 1, "caused": 1}
    assert counts["b"] == {"suffered": 2, "caused": 0}
    assert counts["c"] == {"suffered": 1, "caused": 0}  # it preempted itself
    assert set(accounts.clients["a"].queue) == {"a"} and not accounts.clients["b"].queue


def test_queue_age_counts_from_the_planned_arrival_or_the_preemption() -> None:
    accounts = folded(
        record(0, 10, 11, arrived=(arrived("a", 7.0, client="ann"), arrived("b", 9.0, client="bob")),
               scheduled=new("b"), tokens=(token("b"),)),
    )  # fmt: skip
    assert accounts.starvation() == Starvation(4.0, "ann", "a")
    assert accounts.clients["ann"].queue_age(accounts.now) == 4.0
    folded(
        record(1, 12, 13, preempted=(preempted("b", "a"),), scheduled=new("a"), tokens=(token("a"),)),
        record(2, 15, 16, finished=(finished("a", client="ann"),)),
        accounts=accounts,
    )
    assert accounts.summary()["ann"]["max_queue_age_s"] == 5.0 and accounts.summary()["ann"]["queue_age_s"] is None
    assert accounts.summary()["bob"]["queue_age_s"] == 4.0  # since 12, when it was preempted
    assert accounts.starvation() == Starvation(5.0, "ann", "a")
    folded(record(3, 19, 20), accounts=accounts)  # nothing happens, time goes on
    assert accounts.starvation() == Starvation(8.0, "bob", "b")
    folded(record(4, 21, 22, finished=(finished("b", FinishReason.ABORT, client="bob"),)), accounts=accounts)
    assert accounts.starvation() == Starvation(10.0, "bob", "b") and not accounts.clients["bob"].queue


def test_nobody_ever_came() -> None:
    accounts = folded(record(0, 0, 1))
    assert accounts.starvation() is None and accounts.summary() == {}
    fairness = accounts.fairness()
    assert fairness["jain"] is None and fairness["windows"]["n"] == 0 and fairness["priorities"] == {}
    assert fairness["backlogged_difference"]["max"] is None


def test_deadlines_and_priorities() -> None:
    accounts = folded(
        record(0, 0, 1, arrived=(
            arrived("met", 0.0, deadline=1.0, client="ann"),
            arrived("late", 0.0, deadline=1.5, client="ann"),
            arrived("free", 0.0, client="ann"),
            arrived("gone", 0.0, deadline=9.0, client="bob", priority=-1),
            arrived("waits", 0.0, deadline=2.5, client="bob", priority=-1),
            arrived("hopes", 0.0, deadline=9.0, client="bob", priority=-1),
        ), scheduled=new("met"), tokens=(token("met"),)),
        record(1, 1, 2, scheduled=new("late", "free"), tokens=(token("late"), token("free")),
               finished=(finished("gone", FinishReason.ABORT, client="bob"),)),
    )  # fmt: skip
    summary = accounts.summary()
    assert summary["ann"]["deadlines"] == {"met": 1, "missed": 1, "attainment": 0.5}
    assert summary["bob"]["deadlines"] == {"met": 0, "missed": 1, "attainment": 0.0}
    folded(record(2, 2, 3), accounts=accounts)
    assert accounts.summary()["bob"]["deadlines"]["missed"] == 2  # `waits` is late already, `hopes` is not
    classes = accounts.fairness()["priorities"]
    assert classes == {
        "-1": {
            "arrived": 3,
            "completed": 0,
            "slo_attainment": None,
            "max_queue_age_s": 3.0,
            "deadlines": {"met": 0, "missed": 2, "attainment": 0.0},
        },
        "0": {
            "arrived": 3,
            "completed": 0,
            "slo_attainment": None,
            "max_queue_age_s": 1.0,
            "deadlines": {"met": 1, "missed": 1, "attainment": 0.5},
        },
    }
    folded(record(3, 3, 4, scheduled=new("waits"), tokens=(token("waits"),)), accounts=accounts)
    assert accounts.summary()["bob"]["deadlines"]["missed"] == 2  # counted once


def test_demand_is_expected_until_it_is_known() -> None:
    accounts = folded(
        record(0, 0, 1, arrived=(
            arrived("a", 0.0, max_tokens=10, expected_output=2),
            arrived("b", 0.0, max_tokens=10),
            arrived("c", 0.0, max_tokens=3, expected_output=50),
        ), scheduled=new("a"), tokens=(token("a"),)),
    )  # fmt: skip
    account = accounts.clients["default"]
    assert account.service + account.outstanding == (4 + 2 * 2) + (4 + 2 * 10) + (4 + 2 * 3)
    more = [record(step, step, step + 1, scheduled=(scheduled("a"),), tokens=(token("a"),)) for step in (1, 2)]
    folded(*more, accounts=accounts)
    assert account.service + account.outstanding == (4 + 2 * 3) + 24 + 10  # a got one more than expected
    gone = (finished("a"), finished("b", FinishReason.ABORT), finished("c", FinishReason.ERROR))
    folded(record(3, 3, 4, finished=gone), accounts=accounts)
    assert account.outstanding == 0 and account.service == 4 + 2 * 3
    assert (account.completed, account.aborted, account.failed) == (1, 1, 1)


def test_rejections_are_counted_and_touch_no_request() -> None:
    """Also the refusal of an id that is here already."""
    accounts = folded(
        record(0, 0, 1, arrived=(arrived("a", 0.0),), scheduled=new("a"), tokens=(token("a"),)),
        record(1, 1, 2, rejected=(Rejected("a", "default", "already here"), Rejected("x", "eve", "too long"))),
        record(2, 2, 3, scheduled=(scheduled("a"),), tokens=(token("a"),), finished=(finished("a"),)),
    )
    summary = accounts.summary()
    assert summary["default"]["requests"] == {"arrived": 1, "completed": 1, "rejected": 1, "failed": 0, "aborted": 0}
    assert summary["eve"]["requests"]["rejected"] == 1 and summary["eve"]["share"] == 0.0
    assert accounts.fairness()["jain"] is None  # eve never asked for anything that was taken


def backlog(shares: Iterable[tuple[int, int]]) -> list[Iteration]:
    """ann and bob always have somebody waiting; an iteration gives each as many output tokens as `shares` says."""
    waiting = tuple(arrived(f"{client}-queue", 0.0, client=client) for client in ("ann", "bob"))
    running = tuple(arrived(client, 0.0, client=client, max_tokens=1000) for client in ("ann", "bob"))
    records = [record(0, 0, 1, arrived=(*waiting, *running), scheduled=new("ann", "bob"))]
    for step, (ann, bob) in enumerate(shares, 1):
        tokens = (*[token("ann")] * ann, *[token("bob")] * bob)
        ids = dict.fromkeys(one.id for one in tokens)
        records.append(record(step, step, step + 1, scheduled=tuple(map(scheduled, ids)), tokens=tokens))
    return records


def test_difference_and_windows_of_a_run() -> None:
    accounts = folded(*backlog([(3, 1), (3, 1), (0, 1)]), accounts=ClientAccounts(window=2.0))
    fairness = accounts.fairness()
    assert fairness["backlogged_difference"] == {"max": 8.0, "ahead": "ann", "behind": "bob", "not_compared": 0}
    # Windows 0..2 (ann 4 + 6, bob 4 + 2) and 2..4 (ann 6, bob 4): both want more.
    windows = fairness["windows"]
    assert (windows["n"], windows["mean"], windows["max"], windows["variance"]) == (2, 3.0, 4.0, 1.0)
    assert fairness["jain"] == pytest.approx(26**2 / (2 * (16**2 + 10**2)), abs=1e-6)


def test_a_window_ends_before_what_arrives_after_it() -> None:
    accounts = folded(
        record(0, 0, 1, arrived=(arrived("a", 0.0, client="ann"), arrived("b", 0.0, client="bob", max_tokens=1)),
               scheduled=new("a"), tokens=(token("a"),)),
        record(1, 12, 12, arrived=(arrived("b2", 12.0, 1000, client="bob"),)),  # paused
        record(2, 40, 41, scheduled=new("b"), tokens=(token("b"),)),
    )  # fmt: skip
    # 0..10: ann 6, bob 0, who wants 6. 40..50: ann 0, who wants 14 more, bob 6.
    assert accounts.fairness()["windows"]["mean"] == 6.0 and accounts.fairness()["windows"]["n"] == 2


def test_weights_divide_the_differences() -> None:
    shares = [(1, 3)] * 5
    plain = folded(*backlog(shares)).fairness()
    assert plain["jain"] == pytest.approx(48**2 / (2 * (14**2 + 34**2)), abs=1e-6)
    assert plain["backlogged_difference"]["max"] == 20.0 and plain["backlogged_difference"]["ahead"] == "bob"
    asked = ClientAccounts({"client_weights": "bob=3"})
    change = record(0, 0, 0, knobs=(KnobChange("client_weights", "", "bob=3", 1),))
    rebuilt = record(0, 0, 0, rebuilt=Rebuilt("m", "float32", 8, 4, (("client_weights", "bob=3"),)))
    for accounts in (
        folded(*backlog(shares), accounts=asked), folded(change, *backlog(shares)), folded(rebuilt, *backlog(shares)),
    ):  # fmt: skip
        fairness = accounts.fairness()
        # The two prompts of 4 are the only difference: 4 and 4/3 over weight.
        assert fairness["backlogged_difference"]["max"] == pytest.approx(4 - 4 / 3, abs=1e-6)
        assert accounts.summary()["bob"]["weight"] == 3.0
        x = (14 / 12, 34 / 36)  # shares of 48 units: 12 and 36
        assert fairness["jain"] == pytest.approx(sum(x) ** 2 / (2 * (x[0] ** 2 + x[1] ** 2)), abs=1e-6)


def test_whoever_just_left_the_queue_is_not_compared() -> None:
    """ann has 100 units before bob is there; bob waits only until he is admitted."""
    before = (
        record(0, 0, 1, arrived=(arrived("a", 0.0, 100, client="ann"), arrived("a2", 0.0, client="ann")),
               scheduled=new("a", tokens=100)),
        record(1, 1, 2, arrived=(arrived("b", 1.0, 50, client="bob"),), scheduled=new("b", tokens=50)),
    )  # fmt: skip
    accounts = folded(*before)
    assert accounts.fairness()["backlogged_difference"]["max"] is None
    passing = record(2, 2, 2, arrived=(arrived("c", 2.0, client="cy"),),
                     finished=(finished("a2", FinishReason.ABORT, client="ann"),))  # fmt: skip
    comer = folded(*before, passing)  # ann leaves in the record in which cy comes
    assert comer.fairness()["backlogged_difference"]["max"] is None
    folded(
        record(2, 2, 3, arrived=(arrived("b2", 2.0, client="bob"),), scheduled=(scheduled("a"),), tokens=(token("a"),)),
        record(3, 3, 4, scheduled=new("b2"), tokens=(token("b2"),)),
        accounts=accounts,
    )
    assert accounts.fairness()["backlogged_difference"] == {
        "max": 2.0, "ahead": "ann", "behind": "bob", "not_compared": 0,
    }  # fmt: skip
