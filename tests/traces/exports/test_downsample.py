"""Long series in little memory: peaks, sums and order survive."""

from __future__ import annotations

import random

import pytest

from traces.exports.downsample import Buckets


def test_short_series_stay_as_they_are() -> None:
    buckets = Buckets(8)
    for n in range(8):
        buckets.add(n, n + 0.5, (n * n,))
    assert buckets.per == 1 and [bucket.mean(0) for bucket in buckets] == [n * n for n in range(8)]
    assert buckets.line(0) == ([*range(8)], [n * n for n in range(8)])


def test_nine_into_four_by_hand() -> None:
    buckets = Buckets(4)
    for n, value in enumerate((3, 1, 4, 1, 5, 9, 2, 6, 5)):
        buckets.add(float(n), n + 0.5, (value,))
    assert buckets.per == 4
    assert [(b.start, b.end, b.number, b.mean(0)) for b in buckets] == [
        (0, 3.5, 4, 2.25),
        (4, 7.5, 4, 5.5),
        (8, 8.5, 1, 5),
    ]
    assert buckets.line(0) == ([1, 2, 5, 6, 8], [1, 4, 9, 2, 5])


@pytest.mark.parametrize("count", [1, 99, 100, 101, 12_345])
def test_nothing_is_lost(count: int) -> None:
    rng = random.Random(count)
    values = [(rng.randrange(1000), rng.randrange(10)) for _ in range(count)]
    buckets = Buckets(100)
    for n, pair in enumerate(values):
        buckets.add(float(n), float(n), pair)
    assert len(buckets) <= 100 and sum(bucket.number for bucket in buckets) == count
    for column in range(2):
        own = [pair[column] for pair in values]
        x, y = buckets.line(column)
        assert sum(bucket.columns[column].sum for bucket in buckets) == sum(own)
        assert (max(y), min(y)) == (max(own), min(own))
        assert x == sorted(x) and all(own[int(at)] == value for at, value in zip(x, y, strict=True))
