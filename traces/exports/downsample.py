"""`Buckets`: a long series in little memory, its peaks kept.

Points are put into buckets of equally many neighbours. When there are too many buckets, each two become one. A bucket
knows the first and last moment, how many points, and of each column sum, least and most and when those were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class Extent(NamedTuple):
    """One column of one bucket."""

    sum: float
    low: float
    low_at: float
    high: float
    high_at: float


class Bucket(NamedTuple):
    start: float
    end: float
    number: int
    """Of points."""
    columns: tuple[Extent, ...]

    def mean(self, column: int) -> float:
        return self.columns[column].sum / self.number


class Buckets:
    """At most `most` of them (an even number); `per` points in each, the last one may have fewer."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.per = 1
        self._buckets: list[Bucket] = []

    def __len__(self) -> int:
        return len(self._buckets)

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._buckets)

    def add(self, start: float, end: float, values: Sequence[float]) -> None:
        """A point from `start` to `end`, not before the one added last; as many values as ever."""
        new = Bucket(start, end, 1, tuple([Extent(value, value, start, value, start) for value in values]))
        buckets = self._buckets
        if buckets and buckets[-1].number < self.per:
            buckets[-1] = _join(buckets[-1], new)
            return
        if len(buckets) == self.most:
            self._buckets = buckets = [_join(*buckets[at : at + 2]) for at in range(0, len(buckets), 2)]
            self.per *= 2
        buckets.append(new)

    def line(self, column: int) -> tuple[list[float], list[float]]:
        """Least and most of each bucket at the moments they were, in order of time: a line that misses no peak."""
        xs: list[float] = []
        ys: list[float] = []
        for bucket in self._buckets:
            extent = bucket.columns[column]
            points = sorted({(extent.low_at, extent.low), (extent.high_at, extent.high)})
            xs += [x for x, _ in points]
            ys += [y for _, y in points]
        return xs, ys


def _join(one: Bucket, two: Bucket) -> Bucket:
    columns = tuple(
        [
            Extent(
                a.sum + b.sum,
                *((a.low, a.low_at) if a.low <= b.low else (b.low, b.low_at)),
                *((a.high, a.high_at) if a.high >= b.high else (b.high, b.high_at)),
            )
            for a, b in zip(one.columns, two.columns, strict=True)
        ]
    )
    return Bucket(one.start, two.end, one.number + two.number, columns)
