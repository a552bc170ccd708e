"""Times as integers: whole nanoseconds where a time is one, the float itself where it is not.

A float never counts nanoseconds and an integer never seconds, so the two cannot be taken for one another.
"""

from __future__ import annotations

import math

LONGEST = 9e9
"""Seconds that 64 bits of nanoseconds hold."""

Units = int | float | str


def to_units(seconds: float) -> Units:
    """Nanoseconds, or the seconds as a float that JSON keeps, or "inf", "-inf", "nan"."""
    if -LONGEST < seconds < LONGEST:
        whole = round(seconds * 1e9)
        return whole if whole / 1e9 == seconds else float(seconds)
    return float(seconds) if math.isfinite(seconds) else str(float(seconds))


def to_seconds(units: Units) -> float:
    """ValueError when a text is no number."""
    return units / 1e9 if type(units) is int else float(units)
