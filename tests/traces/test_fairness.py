"""Fairness arithmetic against figures worked out by hand, known vectors and a slow definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import traces.fairness
from traces.fairness import BackloggedDifference, Windows, equal_share_index, fair_level, fairness_index, jain

ONE = {"a": 1.0, "b": 1.0, "c": 1.0}
UNITS = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 1000).map(float), min_size=2)


def test_jain_of_known_vectors() -> None:
    assert jain([5.0, 5.0, 5.0, 5.0]) == 1.0
    assert jain([1.0, 0.0, 0.0, 0.0]) == 0.25  # one of n has all: 1/n
    assert jain([1.0, 1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.4)  # k of n: k/n
    assert jain([1.0, 2.0, 3.0]) == pytest.approx(36 / 42)
    assert jain([50.0, 30.0, 50.0]) == pytest.approx(130**2 / (3 * 5900))
    assert jain([1.0]) is jain([]) is jain([0.0, 0.0]) is None


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=30), st.floats(0.01, 100))
def test_jain_ignores_scale_and_is_one_over_one_plus_cv_squared(values: list[float], scale: float) -> None:
    """J = 1 / (1 + CV^2), the form given in the report."""
    index = jain(values)
    assert index is not None and 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert index == pytest.approx(jain([scale * value for value in values]))
    assert index == pytest.approx(1 / (1 + float(np.var(values)) / float(np.mean(values)) ** 2))


def test_index_of_the_equal_share() -> None:
    """Demands 10 and 100, 80 given as 10 and 70: max-min fair. Over min(demand, 40) it is x = 1 and 1.75."""
    service, demand = {"a": 10.0, "b": 70.0}, {"a": 10.0, "b": 100.0}
    assert equal_share_index(service, demand, ONE) == pytest.approx(2.75**2 / (2 * (1 + 1.75**2)))
    assert fairness_index(service, demand, ONE) == 1.0
    both = {"a": 30.0, "b": 50.0}, {"a": 90.0, "b": 90.0}  # all want more: x = 0.75 and 1.25
    assert equal_share_index(*both, ONE) == fairness_index(*both, ONE) == pytest.approx(4 / (2 * (0.5625 + 1.5625)))
    # Over weight 1 and 3 the shares of 80 are 20 and 60.
    weights = {"a": 1.0, "b": 3.0}
    assert equal_share_index({"a": 20.0, "b": 60.0}, {"a": 99.0, "b": 99.0}, weights) == 1.0
    assert equal_share_index({"a": 0.0}, {"a": 0.0}, ONE) is equal_share_index({}, {}, ONE) is None
    assert equal_share_index({"a": 0.0, "b": 0.0}, {"a": 5.0, "b": 5.0}, ONE) is None


def test_the_fair_level_is_the_equal_share_when_all_want_more() -> None:
    assert fair_level({"a": 90.0, "b": 50.0}, ONE, 60.0) == 30.0
    assert fair_level({"a": 900.0, "b": 900.0}, {"a": 1.0, "b": 3.0}, 400.0) == 100.0  # b's share is 300


def test_the_fair_level_gives_away_what_small_clients_leave() -> None:
    assert fair_level({"a": 90.0, "b": 90.0, "c": 10.0}, ONE, 60.0) == 25.0
    assert fair_level({"a": 20.0, "b": 40.0}, ONE, 60.0) == math.inf


@given(UNITS, st.floats(0.01, 0.99))
def test_fair_shares_add_up(demand: dict[str, float], part: float) -> None:
    weights = {client: 1.0 + index for index, client in enumerate(demand)}
    total = part * sum(demand.values())
    level = fair_level(demand, weights, total)
    assert sum(min(demand[client], weights[client] * level) for client in demand) == pytest.approx(total)


def test_the_index_by_hand() -> None:
    assert fairness_index({"a": 30.0, "b": 30.0}, {"a": 90.0, "b": 90.0}, ONE) == 1.0
    # Equal share 30: x = 50/30, 10/30.
    assert fairness_index({"a": 50.0, "b": 10.0}, {"a": 90.0, "b": 90.0}, ONE) == pytest.approx(60**2 / (2 * 2600))
    # b wanted 10 and got it: x = 1, 1, though bare service looks uneven.
    assert fairness_index({"a": 50.0, "b": 10.0}, {"a": 90.0, "b": 10.0}, ONE) == 1.0
    assert fairness_index({"a": 10.0, "b": 30.0}, {"a": 99.0, "b": 99.0}, {"a": 1.0, "b": 3.0}) == 1.0
    assert fairness_index({"a": 50.0, "b": 0.0}, {"a": 90.0, "b": 0.0}, ONE) is None  # b asked for nothing


@given(UNITS)
def test_whoever_has_all_they_asked_for_was_treated_fairly(service: dict[str, float]) -> None:
    index = fairness_index(service, service, dict.fromkeys(service, 1.0))
    assert index is None or index == pytest.approx(1.0)


# ---- backlogged difference ----------------------------------------------------------------------------


def test_service_while_the_other_does_not_wait_is_no_difference() -> None:
    found = BackloggedDifference()
    found.enter("a")
    found.charge({"a": 1000.0}, 1.0)
    assert found.worst is None  # alone
    found.enter("b")
    assert found.worst == 0.0
    found.charge({"a": 10.0}, 2.0)
    found.charge({"b": 30.0}, 3.0)
    assert (found.worst, found.between, found.at) == (20.0, ("b", "a"), 3.0)
    found.leave("b")
    found.charge({"a": 500.0, "b": 7.0}, 4.0)
    found.enter("b")  # a new period begins at 0
    found.charge({"a": 15.0, "b": 1.0}, 5.0)
    assert (found.worst, found.between) == (20.0, ("b", "a"))
    found.charge({"a": 15.0}, 6.0)
    assert (found.worst, found.between) == (29.0, ("a", "b"))


STEPS = st.lists(
    st.tuples(st.sets(st.sampled_from("abcd")), st.dictionaries(st.sampled_from("abcd"), st.integers(1, 50))),
    max_size=25,
)


@given(STEPS)
def test_difference_is_that_of_the_definition(steps: list[tuple[set[str], dict[str, int]]]) -> None:
    """steps: who is backlogged, and what they get in that iteration."""
    found = BackloggedDifference()
    before: set[str] = set()
    for at, (backlogged, charges) in enumerate(steps):
        for client in before - backlogged:
            found.leave(client)
        for client in backlogged:
            found.enter(client)
        found.charge({client: float(units) for client, units in charges.items()}, at)
        before = backlogged
    worst: int | None = None
    for first in "abcd":
        for second in "abcd":
            gap: int | None = None
            for backlogged, charges in steps:
                if first == second or not {first, second} <= backlogged:
                    gap = None
                    continue
                gap = (gap or 0) + charges.get(first, 0) - charges.get(second, 0)
                worst = max(worst or 0, abs(gap))
    assert found.worst == worst


def test_too_many_clients_are_counted_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces.fairness, "MOST_COMPARED", 3)
    found = BackloggedDifference()
    for client in "abcde":
        found.enter(client)
    assert found.left_out == 2
    found.charge({"e": 100.0, "c": 4.0}, 1.0)
    assert found.worst == 4.0
    found.leave("d")
    found.leave("a")
    found.enter("e")
    found.charge({"e": 9.0, "c": 1.0}, 2.0)
    assert found.worst == 9.0 and found.between == ("e", "b")


# ---- windows ------------------------------------------------------------------------------------------


def test_windows_by_hand() -> None:
    windows = Windows(10.0)
    assert not windows.over(3.0)  # the first window is 3..13
    windows.charge("a", 100.0)
    windows.charge("b", 40.0)
    assert not windows.over(12.9)
    assert windows.over(13.0)
    # a: 0 behind the most. b: 60 behind, still wants 50. c: 100 behind, wants 30.
    windows.close({"a": 7.0, "b": 50.0, "c": 30.0}, ONE)
    windows.charge("b", 20.0)
    assert windows.over(55.0)  # windows nobody was served in do not count
    windows.close({"a": 0.0, "b": 500.0, "c": 5.0}, ONE)
    summary = windows.summary({}, ONE)
    assert (summary["n"], summary["mean"], summary["max"], summary["variance"]) == (2, 42.5, 80.0, 37.5**2)
    # First: 140 units, demands 107, 90, 30: c is given 30, the others 55 each. Second: 20 units, c wants 5 of them.
    first, second = jain([100 / 55, 40 / 55, 0.0]), jain([20 / 15, 0.0])
    assert first is not None and second is not None
    assert summary["jain_mean"] == pytest.approx((first + second) / 2) and summary["jain_min"] == pytest.approx(second)


def test_the_open_window_is_read_without_being_closed() -> None:
    windows = Windows(10.0)
    windows.over(0.0)
    assert windows.summary({}, ONE)["n"] == 0 and windows.summary({}, ONE)["mean"] is None
    windows.charge("a", 10.0)
    for _ in range(2):
        summary = windows.summary({"b": 3.0}, ONE)
        assert (summary["n"], summary["mean"], summary["variance"]) == (1, 3.0, 0.0)


def test_windows_divide_by_weight() -> None:
    windows = Windows(10.0)
    windows.over(0.0)
    windows.charge("a", 100.0)
    windows.charge("b", 300.0)
    weights = {"a": 1.0, "b": 3.0}
    assert windows.summary({"a": 999.0, "b": 999.0}, weights)["mean"] == 0.0
    weights = {"a": 2.0, "b": 3.0}  # 50 and 100 over weight; a still wants 30 over weight
    assert windows.summary({"a": 60.0, "b": 999.0}, weights)["mean"] == 30.0
