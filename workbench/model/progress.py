"""How far a run of known requests has come, and how long the rest will take.

Two things can hold the end back: the last planned arrival, and the engine's speed. The first is known. The second is
taken from the time the engine has worked and what has ended meanwhile, so it says nothing before something has ended.
The later one is the estimate.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from engine.records import Iteration
from engine.request import Request

BAR = 12
"""Cells of the bar."""


class Progress:
    """Feed it every record; times are the engine's, but on a virtual clock the estimate is of the wall's."""

    def __init__(
        self, requests: Sequence[Request], *, virtual: bool = False, wall: Callable[[], float] = time.monotonic
    ) -> None:
        """requests: with their planned arrivals on the engine's clock; they are not kept."""
        self.total = len(requests)
        self.ended = 0
        self._ids = {request.id for request in requests}
        times = [request.arrival or 0.0 for request in requests if request.after is None]
        self.start, self.last = min(times, default=0.0), max(times, default=0.0)
        self._worked = 0.0
        self._virtual = virtual
        self._wall = wall
        self._begun: float | None = None

    def add(self, it: Iteration) -> None:
        if self._begun is None:
            self._begun = self._wall()
        for ends in (it.finished, it.rejected):
            for end in ends:
                if end.id in self._ids:
                    self._ids.discard(end.id)
                    self.ended += 1
        if it.executed:
            self._worked += it.duration

    @property
    def share(self) -> float:
        return self.ended / self.total if self.total else 1.0

    def eta(self, now: float) -> float | None:
        """Seconds until all have ended; None when nothing is known yet."""
        left = self.total - self.ended
        if not left:
            return 0.0
        if self._virtual:
            worked, schedule = self._wall() - (self._begun or self._wall()), 0.0
        else:
            worked, schedule = self._worked, max(0.0, self.last - now)
        if self.ended:
            return max(schedule, worked * left / self.ended)
        return schedule or None

    def bar(self) -> str:
        full = int(BAR * self.share)
        return f"[{'#' * full}{'-' * (BAR - full)}]"

    def position(self, now: float) -> str:
        """Where in the schedule of arrivals it is."""
        span = self.last - self.start
        return f"{min(max(0.0, now - self.start), span):.0f}/{span:.0f} s"

    def line(self, now: float) -> str:
        """For the screen's header."""
        rest = f"ETA {clock_text(self.eta(now))}" if self.ended < self.total else "done"
        return f"{self.ended}/{self.total} {rest}"


def clock_text(seconds: float | None) -> str:
    """1:05 or 2:03:04; a dash for None."""
    if seconds is None:
        return "-"
    whole = round(seconds)
    minutes, hours = whole // 60, whole // 3600
    return f"{hours}:{minutes % 60:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"
