"""Figures shared by all metrics: percentiles, rounding, and what counts as completed.

Percentiles interpolate linearly between the two nearest values (numpy's default), everywhere. There is no p99 of
fewer than LEAST_FOR_P99 values: it would be the maximum under another name. What was not measured is None, never 0.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.request import FinishReason

COMPLETED = (FinishReason.LENGTH, FinishReason.STOP)
PERCENTS = (50, 90, 95, 99)
LEAST_FOR_P99 = 100
"""Values from which there is a p99."""
INFINITE = "inf"
"""Stands for +inf in what is printed as JSON, which has no such number."""

KEEP = 1 << 16
"""Values a `Pool` keeps as they are."""
STEP = 1.01
"""Ratio of a bucket's ends: a value is known within half a percent."""
SMALLEST, BUCKETS = 1e-7, 2800
"""Seconds where the buckets begin; the last one ends above 100,000."""

Floats = npt.NDArray[np.float64]


def percentile(ordered: Sequence[float] | Floats, percent: int, infinite: int = 0) -> float | None:
    """Of ascending values, followed by this many that are +inf. None when there are none at all."""
    count = len(ordered)
    if count + infinite == 0:
        return None
    at, rest = divmod(percent * (count + infinite - 1), 100)
    if at + (rest > 0) >= count:
        return math.inf
    low = float(ordered[at])
    return low + (float(ordered[at + 1]) - low) * rest / 100 if rest else low


def distribution(values: array[float] | Pool) -> dict[str, float | int | None]:
    """mean, p50, p90, p95, p99, max and n. All but n are None when there is nothing, p99 below LEAST_FOR_P99 values."""
    pool = values if isinstance(values, Pool) else Pool.of(values)
    ordered = pool.ordered()
    return {
        "mean": micro(pool.mean),
        **{f"p{percent}": micro(_enough(ordered, percent)) for percent in PERCENTS},
        "max": micro(pool.max),
        "n": len(pool),
    }


def with_failures(values: array[float], failed: int) -> dict[str, float | int | str | None]:
    """Percentiles as if `failed` more values were there, all +inf; `n` counts them, `inf` is how many.

    A percentile that falls among them, or between the last real value and them, is the string INFINITE.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    row: dict[str, float | int | str | None] = {}
    for percent in PERCENTS:
        value = _enough(ordered, percent, failed)
        row[f"p{percent}"] = INFINITE if value == math.inf else micro(value)
    return {**row, "n": len(values) + failed, "inf": failed}


def _enough(ordered: Sequence[float] | Floats, percent: int, infinite: int = 0) -> float | None:
    few = percent == 99 and len(ordered) + infinite < LEAST_FOR_P99
    return None if few else percentile(ordered, percent, infinite)


class Pool:
    """Values of which percentiles are wanted, in memory that does not grow with them.

    Exact up to KEEP values. From then on percentiles come from buckets STEP apart and are right within half a percent
    (below SMALLEST: 0); n, mean and max stay exact.
    """

    __slots__ = ("_counts", "_fresh", "_number", "_sum", "max")

    def __init__(self) -> None:
        self._fresh = array("d")
        """Not in the buckets yet."""
        self._counts: npt.NDArray[np.int64] | None = None
        self._number = 0
        self._sum = 0.0
        self.max: float | None = None

    @classmethod
    def of(cls, values: array[float]) -> Pool:
        """All of them exact, however many there are."""
        pool = cls()
        pool._fresh, pool._number = values, len(values)
        if values:
            data = np.asarray(values)
            pool._sum, pool.max = float(data.sum()), float(data.max())
        return pool

    def __len__(self) -> int:
        return self._number

    @property
    def mean(self) -> float | None:
        return self._sum / self._number if self._number else None

    def extend(self, values: Floats) -> None:
        """Take some in (seconds, 0 or more)."""
        if not len(values):
            return
        self._fresh.frombytes(values.tobytes())
        self._number += len(values)
        self._sum += float(values.sum())
        most = float(values.max())
        self.max = most if self.max is None else max(self.max, most)
        if len(self._fresh) > (KEEP if self._counts is None else KEEP >> 4):
            self._counts = self._counted()
            self._fresh = array("d")

    def _counted(self) -> npt.NDArray[np.int64]:
        data = np.maximum(np.asarray(self._fresh), SMALLEST)
        where = np.minimum((np.log(data / SMALLEST) / math.log(STEP)).astype(np.int64), BUCKETS - 1)
        counts = np.bincount(where, minlength=BUCKETS)
        return counts if self._counts is None else counts + self._counts

    def ordered(self) -> Sequence[float] | Floats:
        """The values, ascending."""
        if self._counts is None:
            return np.sort(np.asarray(self._fresh, np.float64))
        return _Ranks(self._counted(), self.max or 0.0)


class _Ranks(Sequence[float]):
    """What stands at each place among values of which only the buckets are known: the middle of its bucket."""

    def __init__(self, counts: npt.NDArray[np.int64], most: float) -> None:
        self._upto = np.cumsum(counts)
        self._most = most

    def __len__(self) -> int:
        return int(self._upto[-1])

    def __getitem__(self, at: int) -> float:  # type: ignore[override]
        bucket = int(np.searchsorted(self._upto, at, side="right"))
        return min(self._most, SMALLEST * STEP ** (bucket + 0.5)) if bucket else 0.0


def gaps(times: array[float]) -> Floats:
    """Seconds between neighbours; empty for fewer than two."""
    return np.diff(np.asarray(times, np.float64))


def minus(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def micro(value: float | None) -> float | None:
    """Six places: below a microsecond is noise of the clock."""
    return None if value is None else round(value, 6)
