"""Counting whole numbers exactly in a small, bounded memory: lengths, and occurrences of keys.

Lengths are bounded integers, so how often each value occurs is an exact picture of them, whatever the file's size:
percentiles come out as numpy would compute them from all the values (linear interpolation).
"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from traces.rows import Ints

DENSE = 1 << 18
"""Lengths below this are counted in one array (2 MiB); longer ones, which are few, in a Counter."""
PENDING = 1 << 18
"""Lengths or keys that are gathered before they are counted."""
PERCENTILES = (50, 90, 95, 99)


class Bin(NamedTuple):
    low: int
    high: int
    """Inclusive."""
    rows: int


class Lengths:
    """How often each length occurs."""

    def __init__(self) -> None:
        self._dense: Ints = np.zeros(1024, np.int64)
        self._long: Counter[int] = Counter()
        self._pending: list[Ints] = []
        self._waiting = 0
        self.n = 0
        self.total = 0

    def add(self, values: Ints) -> None:
        """values: 0 or more, each."""
        if not len(values):
            return
        self.n += len(values)
        self.total += int(values.sum())
        self._pending.append(values)
        self._waiting += len(values)
        if self._waiting >= PENDING:
            self._count()

    def _count(self) -> None:
        if not self._pending:
            return
        values = np.concatenate(self._pending)
        self._pending, self._waiting = [], 0
        if int(values.max()) >= DENSE:
            self._long.update(values[values >= DENSE].tolist())
            values = values[values < DENSE]
        counts = np.bincount(values, minlength=len(self._dense))
        counts[: len(self._dense)] += self._dense
        self._dense = counts

    def _table(self) -> tuple[Ints, Ints]:
        """Values in rising order and their counts."""
        self._count()
        values = np.flatnonzero(self._dense)
        long = sorted(self._long.items())
        counts = [*self._dense[values].tolist(), *(count for _, count in long)]
        return np.array([*values.tolist(), *(value for value, _ in long)], np.int64), np.array(counts, np.int64)

    def over(self, limit: int) -> int:
        """How many are above `limit`."""
        values, counts = self._table()
        return int(counts[values > limit].sum())

    def percentile(self, percent: float) -> float | None:
        """numpy's `percentile(values, percent)`; None when there is nothing."""
        if not self.n:
            return None
        values, counts = self._table()
        ends = np.cumsum(counts)
        place = percent / 100 * (self.n - 1)
        low, high = (int(values[np.searchsorted(ends, k, side="right")]) for k in (int(place), -int(-place // 1)))
        return low + (high - low) * (place - int(place))

    def summary(self) -> dict[str, float | int | None]:
        """n, p50, p90, p95, p99, mean, max; all but n are None when there is nothing."""
        figures: dict[str, float | int | None] = {"n": self.n}
        figures |= {f"p{percent}": self.percentile(percent) for percent in PERCENTILES}
        figures["mean"] = self.total / self.n if self.n else None
        figures["max"] = int(self._table()[0][-1]) if self.n else None
        return figures

    def histogram(self) -> list[Bin]:
        """Bins of doubling width, 1, 2-3, 4-7, 8-15 ..., from the smallest to the largest value without a hole.

        A first bin 0 when there are zeros."""
        if not self.n:
            return []
        values, counts = self._table()
        exponents = np.where(values > 0, np.floor(np.log2(np.maximum(values, 1))).astype(np.int64), -1)
        sums: dict[int, int] = {}
        for exponent, count in zip(exponents.tolist(), counts.tolist(), strict=True):
            sums[exponent] = sums.get(exponent, 0) + count
        return [
            Bin(1 << exponent, (2 << exponent) - 1, sums.get(exponent, 0)) if exponent >= 0 else Bin(0, 0, sums[-1])
            for exponent in range(min(sums), max(sums) + 1)
            if exponent >= 0 or -1 in sums
        ]


class KeyCounts:
    """How often each of very many integer keys occurs: 16 bytes a distinct key.

    Beyond `most` distinct keys it is `full`, forgets everything and takes no more: what it counted would be wrong.
    """

    def __init__(self, most: int = 1 << 21, dtype: npt.DTypeLike = np.int64) -> None:
        self.full = False
        self._most = most
        self._keys: npt.NDArray[Any] = np.zeros(0, dtype)
        self._counts: Ints = np.zeros(0, np.int64)
        self._pending: list[npt.NDArray[Any]] = []
        self._waiting = 0

    def add(self, keys: npt.NDArray[Any]) -> None:
        if self.full or not len(keys):
            return
        self._pending.append(keys)
        self._waiting += len(keys)
        if self._waiting >= PENDING:
            self._merge()

    def _merge(self) -> None:
        if not self._pending:
            return
        fresh, counts = np.unique(np.concatenate(self._pending), return_counts=True)
        self._pending, self._waiting = [], 0
        if not len(self._keys) or fresh[0] > self._keys[-1]:  # times mostly rise
            self._keys, self._counts = np.concatenate((self._keys, fresh)), np.concatenate((self._counts, counts))
        else:
            self._add(fresh, counts)
        if len(self._keys) > self._most:
            self.full = True
            self._keys, self._counts = self._keys[:0], self._counts[:0]

    def _add(self, fresh: npt.NDArray[Any], counts: Ints) -> None:
        self._keys, places = np.unique(np.concatenate((self._keys, fresh)), return_inverse=True)
        sums = np.zeros(len(self._keys), np.int64)
        np.add.at(sums, places, np.concatenate((self._counts, counts)))
        self._counts = sums

    def table(self) -> tuple[npt.NDArray[Any], Ints]:
        """Distinct keys in rising order, and their counts."""
        self._merge()
        return self._keys, self._counts
