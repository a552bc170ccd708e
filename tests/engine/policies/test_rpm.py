"""rpm: a minute slides over the admissions of each client."""

from __future__ import annotations

from tests.engine.policies.helpers import add_all, at, configure, ids, make, policy_of, preempt, run


def test_the_first_whose_client_is_below_its_limit() -> None:
    policy = policy_of("rpm", requests_per_minute=2)
    add_all(policy, [make(f"a{i}", client="a") for i in range(3)])
    add_all(policy, [make(f"b{i}", client="b") for i in range(3)])
    assert ids(policy) == ["a0", "a1", "b0", "b1", "a2", "b2"]
    for _ in range(4):
        assert policy.keeps_back(policy.head()) is None and policy.wake() is None
        policy.take(policy.head())
    assert policy.head().id == "a2"
    reason = policy.keeps_back(policy.head())
    assert reason is not None and "client a" in reason and "limit is 2" in reason and "60.0 s" in reason


def test_the_minute_slides() -> None:
    policy = policy_of("rpm", requests_per_minute=2)
    add_all(policy, [make(f"a{i}", client="a") for i in range(4)])
    policy.take(policy.head())
    at(policy, 20.0)
    policy.take(policy.head())
    assert policy.wake() == 60.0
    at(policy, 59.9)
    reason = policy.keeps_back(policy.head())
    assert reason is not None and "0.1 s" in reason
    at(policy, 60.0)
    assert policy.keeps_back(policy.head()) is None
    policy.take(policy.head())
    assert policy.wake() == 80.0
    at(policy, 80.0)
    assert policy.wake() is None and policy.head().id == "a3"


def test_wakes_for_whoever_is_first_free() -> None:
    policy = policy_of("rpm", requests_per_minute=1)
    add_all(policy, [make("b0", client="b"), make("b1", client="b")])
    policy.take(policy.head())
    at(policy, 10.0)
    add_all(policy, [make("a0", client="a"), make("a1", client="a")])
    assert policy.head().id == "a0"
    policy.take(policy.head())
    assert policy.head().id == "b1" and policy.wake() == 60.0
    policy.remove(policy.head())
    assert policy.head().id == "a1" and policy.wake() == 70.0


def test_a_preempted_request_was_let_in_before() -> None:
    policy = policy_of("rpm", requests_per_minute=1)
    add_all(policy, [make("a0", client="a"), make("a1", client="a"), make("b0", client="b")])
    request = run(policy, policy.head())
    preempt(policy, request)
    assert ids(policy) == ["a0", "b0", "a1"]
    assert policy.keeps_back(policy.head()) is None
    policy.take(policy.head())
    policy.take(policy.head())
    assert policy.keeps_back(policy.head()) is not None and policy.wake() == 60.0


def test_the_limit_is_live() -> None:
    policy = policy_of("rpm", requests_per_minute=3)
    add_all(policy, [make(f"a{i}", client="a") for i in range(5)])
    policy.take(policy.head())
    at(policy, 1.0)
    policy.take(policy.head())
    configure(policy, requests_per_minute=1)
    assert policy.keeps_back(policy.head()) is not None
    assert policy.wake() == 61.0, "both have to leave the minute"
    configure(policy, requests_per_minute=3)
    assert policy.keeps_back(policy.head()) is None and policy.wake() is None
