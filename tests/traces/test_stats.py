"""Percentiles and pools against numpy."""

from __future__ import annotations

import sys
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.stats import KEEP, PERCENTS, Pool, distribution, gaps, percentile, with_failures

FINITE = st.lists(st.floats(0, 1e6), min_size=1, max_size=150)


@given(FINITE)
def test_percentiles_are_numpys(values: list[float]) -> None:
    got = distribution(array("d", values))
    assert got["n"] == len(values) and got["max"] == pytest.approx(max(values), abs=1e-6)
    assert got["mean"] == pytest.approx(float(np.mean(values)), abs=1e-5)
    for percent in PERCENTS:
        if percent == 99 and len(values) < 100:
            assert got["p99"] is None
        else:
            assert got[f"p{percent}"] == pytest.approx(float(np.percentile(values, percent)), abs=1e-6)


@given(FINITE, st.integers(0, 60))
def test_infinite_values_are_what_numpy_makes_of_huge_ones(values: list[float], failed: int) -> None:
    huge = 1e300
    for percent in PERCENTS:
        got = percentile(sorted(values), percent, failed)
        expected = float(np.percentile([*values, *[huge] * failed], percent))
        assert got == (pytest.approx(expected, abs=1e-6) if expected <= 1e6 else float("inf"))


def test_with_failures_by_hand() -> None:
    """1 to 95 s, and 5 that failed: the 50th of 100 is 50.5, p95 lies between 95 and +inf."""
    values = array("d", range(1, 96))
    assert with_failures(values, 5) == {"p50": 50.5, "p90": 90.1, "p95": "inf", "p99": "inf", "n": 100, "inf": 5}
    # 99 of them: the place of p90 is 88.2 from 0, of p95 93.1; p99 lacks a value.
    assert with_failures(values, 4) == {"p50": 50.0, "p90": 89.2, "p95": 94.1, "p99": None, "n": 99, "inf": 4}
    assert with_failures(array("d"), 0) == {"p50": None, "p90": None, "p95": None, "p99": None, "n": 0, "inf": 0}
    assert with_failures(array("d"), 1)["p50"] == "inf"


def test_no_p99_below_100_values() -> None:
    assert distribution(array("d", range(99)))["p99"] is None
    assert distribution(array("d", range(1, 101)))["p99"] == 99.01
    assert with_failures(array("d", range(1, 100)), 0)["p99"] is None


@pytest.mark.parametrize("spread", [1e-5, 0.05, 300.0])
def test_a_big_pool_is_right_within_half_a_percent(spread: float) -> None:
    values = np.random.default_rng(7).lognormal(np.log(spread), 1.0, 5 * KEEP)
    values[:10] = 0.0
    pool = Pool()
    for part in np.array_split(values, 999):
        pool.extend(part)
    got = distribution(pool)
    assert got["n"] == len(pool) == len(values)
    assert got["max"] == round(float(values.max()), 6) and got["mean"] == round(float(values.mean()), 6)
    ordered = pool.ordered()
    assert ordered[0] == 0.0 and len(ordered) == len(values)
    for percent in PERCENTS:
        assert percentile(ordered, percent) == pytest.approx(float(np.percentile(values, percent)), rel=0.0051)


def test_a_pool_does_not_grow() -> None:
    pool = Pool()
    rng = np.random.default_rng(1)
    sizes = []
    for _ in range(6):
        for _ in range(20):
            pool.extend(rng.random(KEEP // 16))
        sizes.append(sum(sys.getsizeof(part) for part in (pool._fresh, pool._counts)))
    assert len(pool) > 5 * KEEP
    assert max(sizes[1:]) < 8 * KEEP


def test_a_pool_is_exact_while_it_is_small() -> None:
    pool = Pool()
    for part in ([3.0, 1.0], [], [2.0]):
        pool.extend(np.array(part))
    assert distribution(pool) == {"mean": 2.0, "p50": 2.0, "p90": 2.8, "p95": 2.9, "p99": None, "max": 3.0, "n": 3}
    assert distribution(Pool())["n"] == 0 and distribution(Pool())["max"] is None


def test_gaps() -> None:
    assert list(gaps(array("d", [1.0, 1.5, 4.0]))) == [0.5, 2.5]
    assert not len(gaps(array("d", [1.0]))) and not len(gaps(array("d")))
