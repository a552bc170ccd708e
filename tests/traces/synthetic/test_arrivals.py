"""Gaps against tables of the gamma distribution, and draws against what they promise."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from traces.synthetic.arrivals import _inverse_gamma, gamma_gaps, steady, streams, swinging, with_idle
from traces.synthetic.draw import Draw, apportion
from traces.synthetic.grids import Grid, quantiles


@pytest.mark.parametrize(
    ("shape", "part", "x"),
    [
        (0.5, 0.5, 0.4549364 / 2),  # chi-square with 1 degree of freedom, halved
        (0.5, 0.95, 3.8414588 / 2),
        (0.5, 0.999, 10.8275662 / 2),
        (1.0, 0.5, math.log(2)),
        (1.0, 0.99, math.log(100)),
        (2.0, 0.5, 3.3566940 / 2),  # 4 degrees
        (2.0, 0.05, 0.7107230 / 2),
        (5.0, 0.975, 20.4831774 / 2),  # 10 degrees
    ],
)
def test_quantiles_of_gamma(shape: float, part: float, x: float) -> None:
    assert _inverse_gamma(shape, part, 0.0) == pytest.approx(x, rel=1e-6)


@pytest.mark.parametrize("target", [0.5, 1.0, 1.1, 1.2, 3.0, 3.2, 5.7])
@pytest.mark.parametrize("n", [2000, 20_000])
def test_gaps_have_the_burstiness_asked_for(target: float, n: int) -> None:
    gaps = np.array(gamma_gaps(n, target, Draw(9, "gaps")))
    assert gaps.std() / gaps.mean() == pytest.approx(target, rel=0.08)
    assert gaps.mean() == pytest.approx(1, rel=0.05)
    neighbours = float(np.corrcoef(gaps[1:], gaps[:-1])[0, 1])
    assert abs(neighbours) < 0.1


def test_times() -> None:
    times = steady(101, 4.0, 1.0, Draw(1, "a"))
    assert (times[0], times[-1]) == (0, 25_000_000) and times == sorted(times)
    assert steady(1, 4.0, 1.0, Draw(1, "a")) == [0] == swinging(1, 4.0, 1.0, 0.3, Draw(1, "a"))
    assert steady(0, 4.0, 1.0, Draw(1, "a")) == []
    times = with_idle(3000, 1.0, 3.2, Draw(1, "a"), per_hour=20, idle=(10, 200))
    assert times == sorted(times) and times[-1] == pytest.approx(2999e6, abs=100)


@pytest.mark.parametrize("n", [2, 3, 30, 100, 300])
def test_idle_times_in_short_runs(n: int) -> None:
    for seed in range(20):
        times = with_idle(n, 0.5, 3.2, Draw(seed, "a"), per_hour=20, idle=(10, 200))
        assert len(times) == n and times == sorted(times) and times[0] == 0
        assert times[-1] == pytest.approx((n - 1) / 0.5 * 1e6, rel=1e-3)


def test_swing() -> None:
    """In the middle half come (1/2 + 0.3 / pi) of all: the integral of 1 - 0.3 cos."""
    times = np.array(swinging(20_001, 10.0, 1.0, 0.3, Draw(1, "a"))) / 2e9
    assert ((times > 0.25) & (times < 0.75)).mean() == pytest.approx(0.5 + 0.3 / math.pi, abs=0.01)


def test_streams_side_by_side() -> None:
    merged = streams([300, 100, 0], [1.0, 2.0, 1.0], 100.0, Draw(4, "a"))
    assert merged == sorted(merged) and merged[0][0] == 0
    assert Counter(client for _, client in merged) == {0: 300, 1: 100}
    assert merged[-1][0] < 100e6


def test_strata_hold_one_number_of_each_part() -> None:
    numbers = Draw(3, "x").strata(1000)
    assert sorted(int(number * 1000) for number in numbers) == list(range(1000))
    assert numbers != sorted(numbers)
    assert Draw(3, "x").strata(1000) == numbers != Draw(3, "y").strata(1000)


def test_shuffles_are_fair() -> None:
    """Each of the 6 orders of three things, 1,000 times of 6,000: within five standard deviations."""
    draw = Draw(1, "shuffle")
    orders: Counter[tuple[int, ...]] = Counter()
    for _ in range(6000):
        items = [0, 1, 2]
        draw.shuffle(items)
        orders[tuple(items)] += 1
    assert len(orders) == 6 and all(abs(count - 1000) < 5 * 29 for count in orders.values())


def test_shares() -> None:
    assert apportion(10, [1, 1, 1]) == [4, 3, 3]
    assert apportion(7, [0.5, 0.25, 0.25]) == [3, 2, 2]
    assert apportion(0, [1, 2]) == [0, 0]
    names = Draw(1, "x").shared(("a", "b"), (3, 1), 400)
    assert Counter(names) == pytest.approx({"a": 300, "b": 100}, abs=1)


def test_grids() -> None:
    grid = Grid((0.0, 50.0, 100.0), (10, 20, 60))
    assert [grid.at(share) for share in (0, 0.25, 0.5, 0.75, 1.0)] == [10, 15, 20, 40, 60]
    assert grid.mean == pytest.approx(0.5 * 15 + 0.5 * 40)
    assert quantiles("azure2023_conv", "output").at(0.5) == 129
