"""fair, lcf and drr: what is charged to whom, and what an absence is worth."""

from __future__ import annotations

import pytest

from tests.engine.policies.helpers import add_all, configure, drain, ids, make, policy_of, preempt, run, serve

ACCOUNTS = ["fair", "lcf", "drr"]


@pytest.mark.parametrize("name", ACCOUNTS)
def test_prompt_on_admission_and_twice_each_token(name: str) -> None:
    policy = policy_of(name)
    policy.add(make("1", 10, client="a"))
    before = policy.service("a")
    request = run(policy, policy.head())
    assert policy.service("a") - before == 10 + 2
    serve(policy, request)
    assert policy.service("a") - before == 10 + 4
    policy.served(request, 12, 1, False)
    assert policy.service("a") - before == 10 + 4


@pytest.mark.parametrize("name", ACCOUNTS)
@pytest.mark.parametrize(("counted", "charged"), [(False, 4), (True, 10)])
def test_cached_tokens_are_free_unless_counted(name: str, counted: bool, charged: int) -> None:
    policy = policy_of(name, cached=lambda request: 6, count_cached_tokens=counted)
    policy.add(make("1", 10, client="a"))
    before = policy.service("a")
    policy.take(policy.head())
    assert policy.service("a") - before == charged


@pytest.mark.parametrize("name", ACCOUNTS)
def test_preempted_goes_to_the_front_of_its_client_and_is_not_charged_again(name: str) -> None:
    policy = policy_of(name)
    add_all(policy, [make(id, 10, client="a") for id in ("1", "2", "3")])
    first, second = run(policy, policy.head()), run(policy, policy.head())
    preempt(policy, second)
    preempt(policy, first)
    assert ids(policy) == ["1", "2", "3"]
    charged = policy.service("a")
    assert run(policy, policy.head()) is first
    assert policy.service("a") == charged + 2, "computing again is no service, the new token is"


def test_smallest_counter_first_then_by_name() -> None:
    policy = policy_of("fair")
    add_all(policy, [make("b1", 5, client="b"), make("b2", 5, client="b")])
    add_all(policy, [make("a1", 8, client="a"), make("a2", 8, client="a"), make("c1", 1, client="c")])
    assert drain(policy) == ["a1", "b1", "c1", "b2", "a2"]


def test_weights_change_while_running() -> None:
    policy = policy_of("fair", client_weights="a=4")
    add_all(policy, [make(f"a{i}", 8, client="a") for i in range(4)])
    add_all(policy, [make(f"b{i}", 8, client="b") for i in range(4)])
    assert ids(policy) == ["a0", "b0", "a1", "a2", "a3", "b1", "b2", "b3"]
    policy.take(policy.head())
    policy.take(policy.head())
    configure(policy, client_weights="b=8")
    assert (policy.service("a"), policy.service("b")) == (2, 8)
    assert drain(policy) == ["a1", "b1", "b2", "a2", "b3", "a3"]


def test_lift_to_the_smallest_of_those_who_wait() -> None:
    policy = policy_of("fair")
    add_all(policy, [make("a1", 100, client="a"), make("a2", 1, client="a")])
    add_all(policy, [make("b1", 60, client="b"), make("b2", 1, client="b")])
    policy.take(policy.head())
    policy.take(policy.head())
    policy.add(make("c1", 1, client="c"))
    assert [policy.service(client) for client in "abc"] == [100, 60, 60]
    policy.add(make("c2", 1, client="c"))
    assert policy.service("c") == 60
    assert ids(policy) == ["b2", "c1", "c2", "a2"]


def test_nobody_is_lowered() -> None:
    policy = policy_of("fair")
    add_all(policy, [make("a1", 100, client="a"), make("b1", 3, client="b"), make("b2", 3, client="b")])
    policy.take(policy.head())
    policy.take(policy.head())
    policy.add(make("a2", 1, client="a"))
    assert policy.service("a") == 100


def test_lift_to_the_one_who_left_last_when_nobody_waits() -> None:
    """Its counter as it is by then: it may have been sampled for since."""
    policy = policy_of("fair")
    add_all(policy, [make("a1", 10, client="a"), make("b1", 30, client="b")])
    run(policy, policy.head())
    last = run(policy, policy.head())
    serve(policy, last)
    policy.add(make("c1", 1, client="c"))
    assert policy.service("c") == policy.service("b") == 34


@pytest.mark.parametrize(("others_wait", "lifted"), [(False, 7), (True, 50)])
def test_an_abort_leaves_the_queue_too(others_wait: bool, lifted: int) -> None:
    """b leaves last, by an abort of its only request; a removal that leaves it some is no leaving."""
    policy = policy_of("fair")
    policy.add(make("b0", 7, client="b"))
    policy.take(policy.head())
    policy.add(make("a1", 50, client="a"))
    aborted = [make("b1", 9, client="b"), make("b2", 9, client="b")]
    policy._accounts["a"] = 0.0  # type: ignore[attr-defined]
    add_all(policy, aborted)
    policy.remove(aborted[0])
    policy.take(policy.head())
    assert policy.service("a") == 50
    if others_wait:
        run(policy, policy.head())
        policy._accounts["b"] = 50.0  # type: ignore[attr-defined]
    else:
        policy.remove(aborted[1])
    assert len(policy) == 0
    policy.add(make("c1", 1, client="c"))
    assert policy.service("c") == lifted


def test_a_preemption_is_an_arrival_for_the_lift() -> None:
    """Or a client with one endless answer would save up service while it has nothing waiting."""
    policy = policy_of("fair")
    policy.add(make("a1", 10, client="a"))
    request = run(policy, policy.head())
    add_all(policy, [make("b1", 500, client="b"), make("b2", 500, client="b")])
    policy.take(policy.head())
    assert policy.service("a") < policy.service("b")
    preempt(policy, request)
    assert policy.service("a") == policy.service("b")
    assert ids(policy) == ["a1", "b2"]


def test_lcf_does_not_lift() -> None:
    policy = policy_of("lcf")
    add_all(policy, [make(f"a{i}", 100, client="a") for i in range(3)])
    policy.take(policy.head())
    policy.take(policy.head())
    add_all(policy, [make(f"b{i}", 90, client="b") for i in range(4)])
    assert policy.service("b") == 0
    assert drain(policy) == ["b0", "b1", "b2", "a2", "b3"]


# ---- deficit round robin ------------------------------------------------------------------------------


def test_drr_serves_a_client_until_its_deficit_is_used_up() -> None:
    policy = policy_of("drr", drr_quantum=10)
    add_all(policy, [make(f"a{i}", 4, client="a") for i in range(6)])
    add_all(policy, [make(f"b{i}", 10, client="b") for i in range(3)])
    add_all(policy, [make(f"c{i}", 25, client="c") for i in range(2)])
    # a: 10 - 12 = -2, then 8 - 8 = 0, then 10; b: 10 a round; c: 10 - 25 = -15, back above 0 two rounds later
    assert drain(policy) == ["a0", "a1", "a2", "b0", "c0", "a3", "a4", "b1", "a5", "b2", "c1"]


def test_drr_weights_and_quantum_are_live_and_keep_deficits() -> None:
    policy = policy_of("drr", drr_quantum=10, client_weights="b=2")
    add_all(policy, [make(f"{client}{i}", 10, client=client) for client in "ab" for i in range(5)])
    assert ids(policy)[:6] == ["a0", "b0", "b1", "a1", "b2", "b3"]
    policy.take(policy.head())
    policy.take(policy.head())
    assert (policy.deficit("a"), policy.deficit("b")) == (0, 10)  # type: ignore[attr-defined]
    configure(policy, drr_quantum=30, client_weights="")
    assert (policy.deficit("a"), policy.deficit("b")) == (0, 10)  # type: ignore[attr-defined]
    assert ids(policy)[:7] == ["b1", "a1", "a2", "a3", "b2", "b3", "b4"]


def test_drr_output_tokens_are_taken_off() -> None:
    policy = policy_of("drr", drr_quantum=10)
    add_all(policy, [make(f"{client}{i}", 4, client=client) for client in "ab" for i in range(3)])
    request = run(policy, policy.head())
    assert policy.head().id == "a1"
    serve(policy, request)
    serve(policy, request)
    assert policy.deficit("a") == 10 - 4 - 6  # type: ignore[attr-defined]
    assert policy.head().id == "b0"


def test_drr_no_savings_but_debts_are_worked_off_by_rounds() -> None:
    policy = policy_of("drr", drr_quantum=10)
    add_all(policy, [make("a0", 35, client="a"), make("c0", 2, client="c")])
    add_all(policy, [make(f"b{i}", 10, client="b") for i in range(9)])
    for _ in range(4):
        policy.take(policy.head())
    # a, c and b in the first round, b in the second
    assert policy.deficit("a") == -15  # type: ignore[attr-defined]
    add_all(policy, [make("a1", 1, client="a"), make("c1", 12, client="c"), make("c2", 1, client="c")])
    assert policy.deficit("c") == 0, "8 of the first round and 10 of the second are gone"  # type: ignore[attr-defined]
    assert ids(policy) == ["b2", "c1", "b3", "a1", "c2", "b4", "b5", "b6", "b7", "b8"]


def test_drr_default_quantum_is_a_twentieth_of_the_pool() -> None:
    policy = policy_of("drr", num_blocks=101, block_size=16, max_model_len=64)
    add_all(policy, [make(f"{client}{i}", 40, client=client) for client in "ab" for i in range(3)])
    assert drain(policy) == ["a0", "a1", "b0", "b1", "a2", "b2"]
