"""What is worth stopping at, a byte of bits for each step. One rule for recordings and for a run that is watched.

SLOW: an executed iteration that took more than SLOW_FACTOR times the median of the last SLOW_WINDOW executed ones
before it, and at least SLOW_LEAST seconds; nothing is slow before there are SLOW_NEEDED to compare with.
Invariant: the marks of a step depend on its own record, on those that ran nothing and came after it and before the
next step, and for SLOW on the durations before it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from enum import IntFlag
from typing import NamedTuple

from engine.records import Iteration

SLOW_FACTOR = 3.0
SLOW_WINDOW = 64
SLOW_NEEDED = 8
SLOW_LEAST = 0.0005


class Mark(IntFlag):
    PREEMPTION = 1
    KNOB = 2
    """A knob was changed, or the engine built anew."""
    FINISH = 4
    ARRIVAL = 8
    SLOW = 16
    FAULT = 32


class StepMark(NamedTuple):
    step: int
    """A record that ran nothing belongs to the step before it."""
    bits: int


class Marks:
    """Give it every record in order."""

    def __init__(self) -> None:
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []

    def prime(self, durations: Iterable[float]) -> None:
        """Begin after iterations that took this long, oldest first."""
        for duration in durations:
            self._slow(duration)

    def add(self, it: Iteration) -> StepMark:
        """The bits this record adds to a step."""
        bits = 0
        if it.preempted:
            bits |= Mark.PREEMPTION
        if it.knobs or it.rebuilt is not None:
            bits |= Mark.KNOB
        if it.finished:
            bits |= Mark.FINISH
        if it.arrived:
            bits |= Mark.ARRIVAL
        if it.fault is not None:
            bits |= Mark.FAULT
        if it.scheduled and self._slow(it.t_end - it.t_start):
            bits |= Mark.SLOW
        return StepMark(it.step, int(bits))

    def _slow(self, duration: float) -> bool:
        recent, ordered = self._recent, self._sorted
        slow = (
            len(ordered) >= SLOW_NEEDED
            and duration >= SLOW_LEAST
            and duration > SLOW_FACTOR * ordered[len(ordered) // 2]
        )
        recent.append(duration)
        insort(ordered, duration)
        if len(recent) > SLOW_WINDOW:
            del ordered[bisect_left(ordered, recent.popleft())]
        return slow
