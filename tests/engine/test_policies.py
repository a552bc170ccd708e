"""What every policy keeps, the order of fcfs and priority, and whom the victim rules choose (SCHEDULER 1, 2.2, 4)."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import ConfigError
from engine.knobs import KNOBS, VICTIM_NAMES
from engine.policies import POLICIES, VICTIMS, Policy, find_policy
from engine.request import Request
from tests.engine.policies.helpers import add_all, at, configure, drain, ids, make, policy_of, preempt, run, serve

NAMES = list(POLICIES)


def test_the_tables_have_the_names_of_the_knobs() -> None:
    assert tuple(POLICIES) == KNOBS["policy"].choices
    assert ("auto", *VICTIMS) == VICTIM_NAMES
    assert all(policy.victim in VICTIMS for policy in POLICIES.values())


def test_only_what_is_modelled_on_vllm_is_exact() -> None:
    assert [name for name in NAMES if POLICIES[name].exact] == ["fcfs", "priority"]


@pytest.mark.parametrize("name", ["nosuch", "os:getcwd", "os:nosuch", "nosuchmodule:X"])
def test_no_such_policy(name: str) -> None:
    with pytest.raises(ConfigError, match="policy"):
        find_policy(name)


# ---- fcfs and priority --------------------------------------------------------------------------------


def test_fcfs_order() -> None:
    policy = policy_of("fcfs")
    a, b, c, d = (make(x, priority=-i) for i, x in enumerate("abcd"))
    add_all(policy, (a, b, c))
    assert policy.head() is a
    policy.take(a)
    policy.remove(c)
    policy.add(d)
    policy.readd(a)
    assert ids(policy) == ["a", "b", "d"]


def test_fcfs_several_victims_keep_their_old_order() -> None:
    policy = policy_of("fcfs")
    running = [make(x) for x in "abcd"]
    policy.add(make("z"))
    for _ in range(3):
        policy.readd(running.pop(VICTIMS[policy.victim](running, policy)))
    assert ids(policy) == ["b", "c", "d", "z"]


def test_priority_order() -> None:
    """Smallest (priority, arrival, id as a string) first; a preempted request gets no bonus."""
    rng = random.Random(1)
    names = ["10_x", "2_x", "a", "", "ab", "a\x00", "a b", "é", "\U0001f600", "Z"]
    requests = [
        make(
            f"{name}{i}" if i % 3 else name * (i + 1),
            arrival=rng.choice([0.0, 1.0, 2.5]),
            priority=rng.choice([-2, 0, 7]),
        )
        for i, name in enumerate(names * 4)
    ]
    policy = policy_of("priority")
    expected: list[Request] = []
    for step, request in enumerate(requests):
        (policy.readd if step % 2 else policy.add)(request)
        expected.append(request)
        expected.sort(key=lambda r: (r.priority, r.arrival, r.id))
        if step % 5 == 4:
            gone = rng.choice(expected)
            expected.remove(gone)
            policy.remove(gone)
        if step % 7 == 6:
            assert policy.head() is expected[0]
            policy.take(expected.pop(0))
        assert list(policy) == expected
        assert policy.head() is expected[0]


def test_priority_with_aging() -> None:
    """Each `aging` seconds of waiting are worth a level, from the moment the knob is set."""
    policy = policy_of("priority")
    add_all(policy, [make("old", arrival=0.0, priority=2), make("new", arrival=30.0, priority=0)])
    assert ids(policy) == ["new", "old"]
    configure(policy, aging=10.0)
    assert ids(policy) == ["old", "new"]
    policy.add(make("newer", arrival=30.0, priority=-2))
    assert ids(policy) == ["newer", "old", "new"]
    configure(policy, aging=None)
    assert ids(policy) == ["newer", "new", "old"]


# ---- victims ------------------------------------------------------------------------------------------


def test_priority_victim() -> None:
    """The largest (priority, arrival); on a tie of both the earliest in the running list, whatever its id."""

    def victim(*running: tuple[str, float, int]) -> int:
        requests = [make(id, arrival=arrival, priority=priority) for id, arrival, priority in running]
        return VICTIMS["priority"](requests, policy_of("priority"))

    assert victim(("a", 0.0, 1), ("b", 5.0, 0), ("c", 1.0, 1)) == 2
    assert victim(("a", 0.0, 0), ("z", 1.0, 3), ("b", 1.0, 3)) == 1
    assert victim(("a", 0.0, 0)) == 0


def test_the_other_victims() -> None:
    running = [make("a", arrival=2.0, client="x"), make("b", arrival=3.0, client="y"), make("c", client="x")]
    for request, computed, blocks in zip(running, (7, 3, 9), (2, 3, 1), strict=True):
        request.num_computed, request.block_table = computed, [1] * blocks
    policy = policy_of("fcfs")
    chosen = {name: rule(running, policy) for name, rule in VICTIMS.items()}
    assert chosen == {
        "last": 2, "priority": 1, "latest": 1, "cheapest": 1, "largest": 1, "greediest": 2, "lowest": 1,
    }  # fmt: skip


# ---- what every policy keeps --------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_queue_made_from_another(name: str) -> None:
    """A policy that takes over gets the waiting requests in order of arrival, preempted ones among them."""
    waiting = [make("a", 4, arrival=1.0), make("b", 4, arrival=2.0), make("c", 4, arrival=3.0)]
    waiting[1].num_preemptions = 1
    policy = policy_of(name)
    add_all(policy, waiting)
    assert ids(policy) == ["a", "b", "c"]


@pytest.mark.parametrize("name", NAMES)
def test_looking_at_the_front_is_lazy(name: str) -> None:
    """A record lists the first few of a queue that may hold ten thousand."""
    policy = policy_of(name)
    add_all(policy, [make(f"{i:02}", arrival=float(i)) for i in range(10)])
    iterator = iter(policy)
    assert next(iterator).id == "00"
    assert not isinstance(iterator, list | tuple)


CHANGES: list[dict[str, Any]] = [
    {"client_weights": "a=3"},
    {"client_weights": ""},
    {"aging": 0.0},
    {"aging": 2.0},
    {"aging": None},
    {"prediction_noise": 1.0},
    {"drr_quantum": 7},
    {"mlfq_quantum": 2},
    {"requests_per_minute": 2},
    {"requests_per_minute": 60},
    {"count_cached_tokens": True},
    {"preemption_mode": "swap"},
]
arriving = st.tuples(
    st.just("add"), st.sampled_from("abc"), st.integers(1, 200), st.integers(1, 60), st.none() | st.integers(0, 50)
)
event = st.one_of(
    arriving,
    arriving,
    st.tuples(st.sampled_from(["take", "take behind", "remove", "readd", "serve", "end"]), st.integers(0, 30)),
    st.tuples(st.just("pass"), st.sampled_from([0.01, 0.5, 7.0, 61.0])),
    st.tuples(st.just("change"), st.sampled_from(CHANGES)),
)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None)
@given(events=st.lists(event, max_size=40))
def test_nobody_is_lost(name: str, events: list[Any]) -> None:
    """Whatever happens: listed once each, the head in front, and taken one by one in the listed order."""
    policy = policy_of(name, cached=lambda request: request.num_prompt // 3)
    waiting: dict[str, Request] = {}
    running: list[Request] = []
    for number, (what, *details) in enumerate(events):
        happen(policy, waiting, running, number, what, details)
        listed = ids(policy)
        assert sorted(listed) == sorted(waiting)
        if policy.preemptive and waiting and running:
            index = policy.displaced(running)
            assert index is None or 0 <= index < len(running)
        assert ids(policy) == listed, "looking changed something"
        if waiting:
            policy.keeps_back(policy.head())
            assert policy.wake() is None or policy.wake() > policy.env.now
    drain(policy)


def happen(
    policy: Policy, waiting: dict[str, Request], running: list[Request], number: int, what: str, details: list[Any]
) -> None:
    if what == "add":
        client, prompt, output, deadline = details
        request = make(
            f"r{number}", [number % 3] * prompt, output, client=client, arrival=policy.env.now, deadline=deadline,
            priority=prompt % 3,
        )  # fmt: skip
        waiting[request.id] = request
        policy.add(request)
    elif what == "pass":
        at(policy, policy.env.now + details[0])
    elif what == "change":
        policy.env.token_seconds += 0.01
        configure(policy, **details[0])
    elif what in ("take", "take behind", "remove") and waiting:
        request = policy.head() if what == "take" else list(waiting.values())[details[0] % len(waiting)]
        del waiting[request.id]
        if what == "remove":
            policy.remove(request)
        else:
            running.append(run(policy, request))
    elif what in ("readd", "serve", "end") and running:
        request = running[details[0] % len(running)]
        if what == "serve":
            serve(policy, request)
            return
        running.remove(request)
        if what == "end":
            policy.ended(request)
        else:
            waiting[request.id] = request
            preempt(policy, request)


def calls_made(work: Callable[[], None]) -> int:
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("clients", [1, 3, 10_000])
@pytest.mark.parametrize("name", NAMES)
def test_ten_thousand_waiting_cost_nothing(name: str, clients: int) -> None:
    """An iteration that admits two, preempts one and lists a screenful does not look at everybody who waits."""
    rng = random.Random(3)
    policy = policy_of(name)
    requests = [
        make(
            f"r{number}", rng.randrange(1, 300), rng.randrange(1, 2000), arrival=number * 1e-3,
            client=f"c{number % clients}", deadline=rng.choice([None, 3.0]),
        )
        for number in range(10_000)
    ]  # fmt: skip
    add_all(policy, requests)
    policy.head()

    def iteration() -> None:
        at(policy, 20.0)
        first = policy.head()
        run(policy, first)
        second = policy.head()
        run(policy, second)
        if policy.preemptive:
            policy.displaced([first, second])
        preempt(policy, second)
        policy.add(make("new", 5, arrival=20.0))
        assert len(list(islice(policy, 30))) == 30
        policy.keeps_back(policy.head())

    assert calls_made(iteration) < 3000
