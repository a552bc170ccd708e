"""Clocks. Nobody else calls `time.*`: a run on a `ManualClock` or a `VirtualClock` is the same every time.

Times are seconds as floats; only differences mean anything. All but a `ManualClock` tell whole nanoseconds, so that a
recording, which holds integers, gives back the same floats.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the clock's own zero."""
        ...


def whole_ns(seconds: float) -> float:
    """The nearest time in whole nanoseconds: differences of times have digits that mean nothing."""
    return round(seconds * 1e9) / 1e9


class RealClock:
    """Monotonic wall time, zero at construction. `wall_zero` is that moment as Unix time."""

    def __init__(self) -> None:
        self._zero = time.perf_counter_ns()
        self.wall_zero = time.time()

    def now(self) -> float:
        return (time.perf_counter_ns() - self._zero) / 1e9


class VirtualClock:
    """Time made of what work is said to cost; the machine's own speed never shows in it.

    It stands still unless told: `engine.executors.timed` moves it by each iteration's cost, and who drives the engine
    jumps it over gaps in which nothing happens instead of sleeping through them.
    """

    def __init__(self) -> None:
        self._ns = 0

    def now(self) -> float:
        return self._ns / 1e9

    def advance_ns(self, ns: int) -> None:
        if ns < 0:
            raise ValueError(f"a clock cannot go back ({ns} ns)")
        self._ns += ns

    def advance_to(self, seconds: float) -> None:
        """Make it `seconds`, or the first nanosecond that is not earlier; nothing if that is past."""
        ns = round(seconds * 1e9)
        self._ns = max(self._ns, ns if ns / 1e9 >= seconds else ns + 1)


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
