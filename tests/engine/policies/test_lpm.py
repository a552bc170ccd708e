"""lpm: cached prefixes first, equal beginnings one at a time, and plain order for long queues."""

from __future__ import annotations

from collections.abc import Callable

from engine.policies import Policy
from engine.request import Request
from tests.engine.policies.helpers import add_all, drain, ids, make, policy_of, preempt, run


class Cache:
    """Says what tests put in, and counts the questions."""

    def __init__(self) -> None:
        self.tokens: dict[str, int] = {}
        self.asked = 0

    def __call__(self, request: Request) -> int:
        self.asked += 1
        return self.tokens.get(request.id, 0)


def lpm(cache: Callable[[Request], int]) -> Policy:
    return policy_of("lpm", cached=cache)


def prompt(shared: int, own: int, length: int = 100) -> list[int]:
    return [7] * shared + [1000 + own] * (length - shared)


def test_longest_cached_prefix_first() -> None:
    cache = Cache()
    policy = lpm(cache)
    add_all(policy, [make(id, prompt(0, i)) for i, id in enumerate("abcd")])
    assert ids(policy) == ["a", "b", "c", "d"]
    cache.tokens = {"c": 48, "b": 16, "d": 48}
    assert ids(policy) == ["a", "b", "c", "d"], "looks once in an iteration"
    policy.begin()
    assert drain(policy) == ["c", "d", "b", "a"]


def test_equal_beginnings_wait_for_the_first_of_them() -> None:
    cache = Cache()
    policy = lpm(cache)
    add_all(policy, [make("a", prompt(40, 1)), make("b", prompt(40, 2)), make("c", prompt(31, 3))])
    add_all(policy, [make("d", prompt(0, 4)), make("e", prompt(32, 5))])
    assert ids(policy) == ["a", "c", "d", "b", "e"]
    run(policy, policy.head())
    assert ids(policy) == ["c", "d", "b", "e"]
    cache.tokens = {"b": 32, "c": 16, "e": 32}
    policy.begin()
    assert ids(policy) == ["b", "e", "c", "d"]


def test_what_is_cached_does_not_count_as_shared() -> None:
    cache = Cache()
    policy = lpm(cache)
    cache.tokens = {"a": 64, "b": 64, "c": 64}
    add_all(policy, [make("a", prompt(95, 1)), make("b", prompt(95, 2)), make("c", prompt(96, 3))])
    add_all(policy, [make("d", prompt(97, 1))])
    assert ids(policy) == ["a", "b", "c", "d"]
    policy.add(make("e", prompt(96, 3)))
    cache.tokens["e"] = 64
    policy.begin()
    assert ids(policy) == ["a", "b", "c", "d", "e"]


def test_short_prompts_are_never_deferred() -> None:
    policy = lpm(Cache())
    add_all(policy, [make("a", [7] * 31), make("b", [7] * 31), make("c", [7] * 32), make("d", [7] * 32)])
    add_all(policy, [make("e", [8] * 5)])
    assert ids(policy) == ["a", "b", "c", "e", "d"]


def test_more_than_128_are_served_as_they_came() -> None:
    cache = Cache()
    policy = lpm(cache)
    add_all(policy, [make(f"r{i:03}", prompt(0, i)) for i in range(129)])
    cache.tokens = {"r100": 64, "r000": 16}
    policy.begin()
    assert policy.head().id == "r000" and ids(policy) == sorted(ids(policy))
    assert cache.asked == 0
    policy.take(policy.head())
    policy.begin()
    assert policy.head().id == "r100"
    assert cache.asked == 128
    ids(policy)
    policy.take(policy.head())
    assert policy.head().id == "r001"
    assert cache.asked == 128, "taking one is no reason to look again"


def test_preempted_requests_are_in_front_among_equals() -> None:
    policy = lpm(Cache())
    add_all(policy, [make("a", prompt(0, 1)), make("b", prompt(0, 2))])
    request = run(policy, policy.head())
    preempt(policy, request)
    assert ids(policy) == ["a", "b"]
