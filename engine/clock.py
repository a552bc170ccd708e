"""Clocks. Nobody else calls `time.*`: a run on a `ManualClock` is the same every time.

Times are seconds as floats; only differences mean anything.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the clock's own zero."""
        ...


def whole(seconds: float) -> float:
    """To the nanosecond: differences of times have digits that mean nothing."""
    return round(seconds * 1e9) / 1e9


class RealClock:
    """Monotonic wall time, zero at construction. `wall_zero` is that moment as Unix time.

    Whole nanoseconds, so that a recording, which holds integers, gives back the same floats.
    """

    def __init__(self) -> None:
        self._zero = time.perf_counter_ns()
        self.wall_zero = time.time()

    def now(self) -> float:
        return (time.perf_counter_ns() - self._zero) / 1e9


class ManualClock:
    """Moves only when told; for tests, and for runs that must repeat exactly."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"a clock cannot go back ({seconds} s)")
        self._now += seconds
