"""mlfq: levels, what uses them up, and who gives way to whom."""

from __future__ import annotations

import pytest

from engine.policies import VICTIMS
from engine.policies.mlfq import Mlfq
from engine.request import Request
from tests.engine.policies.helpers import add_all, at, configure, drain, ids, make, policy_of, preempt, run, serve


def mlfq(**asked: object) -> Mlfq:
    policy = policy_of("mlfq", mlfq_quantum=16, **asked)
    assert isinstance(policy, Mlfq)
    return policy


@pytest.mark.parametrize(("prompt", "level"), [(1, 0), (16, 0), (17, 1), (32, 1), (33, 2), (64, 2), (65, 3), (1000, 6)])
def test_joins_the_first_level_that_holds_its_prompt(prompt: int, level: int) -> None:
    policy = mlfq()
    request = make("a", prompt)
    policy.add(request)
    assert policy.level(request) == level


def test_order_is_by_level_then_by_time() -> None:
    policy = mlfq()
    add_all(policy, [make("big", 40), make("a", 3), make("mid", 20), make("b", 16, arrival=0.01)])
    assert drain(policy) == ["a", "b", "mid", "big"]


def test_moves_down_when_the_quantum_is_used_up() -> None:
    policy = mlfq()
    policy.add(make("a", 10))
    request = run(policy, policy.head())
    levels = [policy.level(serve(policy, request)) for _ in range(50)]
    assert levels.index(1) == 5, "10 of the prompt and 6 tokens"
    assert levels.index(2) == 5 + 32


def test_recomputed_and_cached_tokens_use_nothing() -> None:
    policy = mlfq()
    policy.add(make("a", 10))
    request = run(policy, policy.head())
    serve(policy, request)
    preempt(policy, request)
    run(policy, request)
    assert policy.level(request) == 0
    policy.add(make("b", 14))
    cached = policy.head()
    policy.take(cached)
    policy.served(cached, 13, 1, True)
    assert policy.level(cached) == 0


def test_a_preempted_request_goes_to_the_end_of_its_level() -> None:
    policy = mlfq()
    add_all(policy, [make("a", 10), make("b", 10), make("big", 30)])
    request = run(policy, policy.head())
    at(policy, 0.1)
    preempt(policy, request)
    assert ids(policy) == ["b", "a", "big"]


def test_waiting_long_lifts_to_the_first_level() -> None:
    policy = mlfq()
    add_all(policy, [make("big", 100), make("mid", 20, arrival=0.05)])
    at(policy, 0.25)
    add_all(policy, [make("a", 3, arrival=0.2), make("b", 3, arrival=0.31)])
    assert ids(policy) == ["a", "b", "mid", "big"]
    at(policy, 0.32)
    assert ids(policy) == ["a", "big", "b", "mid"]
    at(policy, 0.36)
    assert ids(policy) == ["a", "big", "b", "mid"]
    policy.add(make("c", 3, arrival=0.36))
    assert ids(policy) == ["a", "big", "b", "mid", "c"]
    policy.take(policy.head())
    big = policy.head()
    policy.take(big)
    assert policy.level(big) == 0


def test_lift_is_off_at_zero_and_live() -> None:
    policy = mlfq(aging=0)
    add_all(policy, [make("big", 100), make("a", 3, arrival=50.0)])
    at(policy, 100.0)
    assert ids(policy) == ["a", "big"]
    configure(policy, aging=1.0)
    assert ids(policy) == ["big", "a"]


def test_lower_levels_give_way_to_higher_heads() -> None:
    policy = mlfq()
    add_all(policy, [make("l2", 40), make("l1", 20), make("later", 40, arrival=0.1), make("l0", 3)])
    running: list[Request] = []
    assert policy.displaced(running) is None
    for id in ("l2", "l1", "later"):
        request = next(request for request in policy if request.id == id)
        policy.take(request)
        running.append(request)
    assert policy.displaced(running) == 2, "of the lowest level, the one that arrived last"
    assert VICTIMS[policy.victim](running, policy) == 2
    assert policy.displaced(running[1:2]) == 0
    policy.take(policy.head())
    policy.add(make("equal", 20))
    assert policy.displaced(running[1:2]) is None


def test_levels_go_with_the_request() -> None:
    policy = mlfq()
    add_all(policy, [make("a", 40), make("b", 40)])
    a = run(policy, policy.head())
    policy.ended(a)
    policy.remove(policy.head())
    assert not policy._levels and not policy._used
