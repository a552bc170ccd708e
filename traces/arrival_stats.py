"""How requests arrive: span, rate, burstiness. One pass, a memory that does not grow with the file.

CV is the standard deviation of the gaps between arrivals over their mean (1 for a Poisson process). D_w is the index of
dispersion: variance over mean of the counts in whole windows of w seconds from the first arrival (1 for Poisson).
Rows may be out of order by as much as LATE rows: gaps are those of the sorted times. Beyond that CV is not known.

Stamps that stand for a batch of arrivals (Mooncake's 3 s, BurstGPT's 1 s where it is busy) make gaps meaningless: when
at least a fifth of the gaps are 0 and nearly no time passes in gaps shorter than the mean, CV is None and `quantum_s`
tells the step.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np

from traces.rows import NO_TIME, Ints
from traces.tally import KeyCounts

LATE = 1 << 16
TOGETHER = 1 << 16
"""Times that are looked at together."""
WINDOWS = (1, 10, 60)
SECOND = 1_000_000_000
RARE = 0.05
"""Share of gaps of 0 below which stamps are surely not quantised."""
MOST_STEPS = 4096
"""Distinct gaps among which the step of quantised stamps is looked for."""


@dataclass(frozen=True, slots=True)
class ArrivalFigures:
    n: int
    """Rows with a time."""
    first_ns: int | None
    """As in the file."""
    span_s: float | None
    rate_per_s: float | None
    """Rows a second of the span."""
    cv: float | None
    dispersion: dict[int, float | None]
    """D_w by window length in seconds."""
    equal_share: float | None
    """Share of gaps that are 0."""
    quantum_s: float | None
    resolution_s: float | None
    """Largest step of which all times (from the first) are whole multiples."""
    inversions: int
    notes: tuple[str, ...] = ()


class Arrivals:
    def __init__(self) -> None:
        self.n = 0
        self.inversions = 0
        self._origin: int | None = None
        """First time of the file: seconds are counted from here until the earliest is known."""
        self._least = self._most = 0
        self._last: int | None = None
        """Of the file's order."""
        self._unit = 1
        self._seconds = KeyCounts()
        self._coarse = KeyCounts()
        self._pending: list[Ints] = []
        """Times that have not been looked at."""
        self._waiting = 0
        self._held: Ints = np.zeros(0, np.int64)
        """The latest times, sorted: a late row may still belong between them."""
        self._passed: int | None = None
        """Latest time whose gap has been taken."""
        self._too_late = 0
        self._gaps = _Gaps()
        self._divisor = 0

    @property
    def first_ns(self) -> int | None:
        """The earliest time, as in the file."""
        self._take()
        return self._least if self.n else None

    def add(self, t_ns: Ints) -> None:
        times = t_ns[t_ns != NO_TIME]
        self._pending.append(times)
        self._waiting += len(times)
        if self._waiting >= TOGETHER:
            self._take()

    def _take(self) -> None:
        if not self._waiting:
            return
        times = np.concatenate(self._pending)
        self._pending, self._waiting = [], 0
        self.n += len(times)
        if self._origin is None:
            self._origin = self._least = self._most = int(times[0])
        else:
            self.inversions += int(times[0]) < (self._last or 0)
        self.inversions += int((times[1:] < times[:-1]).sum())
        self._last = int(times[-1])
        self._least, self._most = min(self._least, int(times.min())), max(self._most, int(times.max()))
        offsets = times - self._origin
        self._divisor = math.gcd(self._divisor, int(np.gcd.reduce(offsets)))
        self._seconds.add(offsets // SECOND)
        self._coarse.add(offsets // (60 * SECOND))
        times = np.concatenate((self._held, times))
        if (times[1:] < times[:-1]).any():
            times.sort()
        if len(times) > LATE:
            self._pass(times[:-LATE])
        self._held = times[-LATE:]

    def _pass(self, times: Ints) -> None:
        if self._passed is not None:
            self._too_late += int((times < self._passed).sum())
            times = np.concatenate((np.array([self._passed]), times))
        self._gaps.add(np.diff(times))
        self._passed = int(times[-1])

    def figures(self) -> ArrivalFigures:
        self._take()
        if self.n and len(self._held):
            self._pass(self._held)
            self._held = self._held[:0]
        notes: list[str] = []
        if not self.n or self._origin is None:
            empty = dict.fromkeys(WINDOWS)
            return ArrivalFigures(0, None, None, None, None, dict(empty), None, None, None, 0)
        span = (self._most - self._least) / SECOND
        cv, quantum = self._gaps.cv, self._gaps.quantum_s
        if self._too_late:
            cv = quantum = None
            notes.append(f"{self._too_late} rows are more than {LATE} rows out of order: no CV")
        elif quantum is not None:
            cv = None
            notes.append(f"stamps are quantised to {quantum:g} s: gaps say nothing about burstiness, so no CV")
        dispersion = {window: self._dispersion(window, notes) for window in WINDOWS}
        return ArrivalFigures(
            self.n,
            self._least,
            span,
            self.n / span if span else None,
            cv,
            dispersion,
            self._gaps.zeros / self._gaps.n if self._gaps.n else None,
            quantum,
            self._divisor / SECOND if self._divisor else None,
            self.inversions,
            tuple(notes),
        )

    def _dispersion(self, window: int, notes: list[str]) -> float | None:
        """Of counts in whole windows only: what is left of the last one would look like a lull."""
        windows = (self._most - self._least) // (window * SECOND)
        if windows < 2:
            return None
        keys, rows = self._seconds.table()
        unit = 1
        if self._seconds.full:
            keys, rows = self._coarse.table()
            unit = 60
            if window < unit or self._coarse.full:
                notes.append(f"more distinct seconds than are kept: no D{window}")
                return None
        origin = self._origin or 0
        first = (self._least - origin) // (unit * SECOND)
        per_window = window // unit
        inside = slice(*np.searchsorted(keys, (first, first + windows * per_window)).tolist())
        keys, rows = keys[inside], rows[inside]
        # Empty windows count too, without an entry each: they add nothing to either sum.
        total = squares = at = 0
        while at < len(keys):  # in parts, each up to the end of a window
            end = (int(keys[min(at + TOGETHER, len(keys)) - 1]) - first) // per_window
            upto = int(np.searchsorted(keys, first + (end + 1) * per_window))
            places = (keys[at:upto] - first) // per_window
            full = np.add.reduceat(rows[at:upto], np.flatnonzero(np.diff(places, prepend=-1)))
            total, squares, at = total + int(full.sum()), squares + int((full**2).sum()), upto
        mean = total / windows
        return (squares / windows - mean**2) / mean if mean else None


class _Gaps:
    """Mean and variance of gaps, merged part by part (Chan et al.): rounding does not grow with their number."""

    def __init__(self) -> None:
        self.n = self.zeros = 0
        self._mean = self._squares = 0.0
        self._time = np.zeros(64)
        """Seconds that pass in gaps of 2^k ns and more, below 2^(k+1) ns."""
        self._steps: Counter[int] = Counter()

    def add(self, gaps: Ints) -> None:
        if not len(gaps):
            return
        gaps = np.maximum(gaps, 0)
        seconds = gaps / SECOND
        mean, squares = float(seconds.mean()), float(seconds.var()) * len(gaps)
        total = self.n + len(gaps)
        self._squares += squares + (mean - self._mean) ** 2 * self.n * len(gaps) / total
        self._mean += (mean - self._mean) * len(gaps) / total
        self.n = total
        above = gaps[gaps > 0]
        self.zeros += len(gaps) - len(above)
        self._time += np.bincount(np.log2(above).astype(np.int64), weights=above / SECOND, minlength=64)[:64]
        if self.zeros < RARE * self.n:  # not quantised so far: what the steps are does not matter
            return
        for step, count in zip(*(part.tolist() for part in np.unique(above, return_counts=True)), strict=True):
            if step in self._steps or len(self._steps) < MOST_STEPS:
                self._steps[step] += count

    @property
    def cv(self) -> float | None:
        return math.sqrt(self._squares / self.n) / self._mean if self.n > 1 and self._mean else None

    @property
    def quantum_s(self) -> float | None:
        """The step of quantised stamps in seconds; None when they are not."""
        above = self.n - self.zeros
        if above < 2 or not self._steps or self.zeros < 0.2 * self.n:
            return None
        # Of a Poisson process 26 % of the time passes in gaps below the mean, of batches none.
        below = float(self._time[: max(0, int(math.log2(self._mean * SECOND)))].sum())
        if below > 0.01 * float(self._time.sum()):
            return None
        return max(self._steps.items(), key=lambda step: step[0] * step[1])[0] / SECOND
