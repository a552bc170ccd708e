"""Clocks for runs that are told where in time they are: one moves only when told, one also runs by itself."""

from __future__ import annotations

import time
from typing import Protocol


class MovedClock(Protocol):
    def now(self) -> float: ...

    def jump(self, to: float) -> None:
        """It is `to` now, be that later or earlier."""
        ...


class VirtualClock:
    """Modelled time."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += seconds

    def jump(self, to: float) -> None:
        self._now = to


class ShiftedClock:
    """Real time, shifted. A rerun stops it while it repeats: then it is to the microsecond when the recording says."""

    def __init__(self) -> None:
        self._shift = -time.perf_counter()
        self._stopped: float | None = None

    def now(self) -> float:
        return time.perf_counter() + self._shift if self._stopped is None else self._stopped

    def jump(self, to: float) -> None:
        self._shift = to - time.perf_counter()
        if self._stopped is not None:
            self._stopped = to

    def stop(self) -> None:
        self._stopped = self.now()

    def go_on(self) -> None:
        if self._stopped is not None:
            self._shift, self._stopped = self._stopped - time.perf_counter(), None
