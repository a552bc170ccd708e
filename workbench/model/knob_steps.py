"""The next value of a knob up or down, for keys."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from engine.knobs import Knob, KnobValue

PACES: tuple[float | None, ...] = (1, 2, 5, 10, 20, 50, None)
"""Iterations a second; None: as fast as it goes."""


def step(knob: Knob, value: KnobValue, direction: int, *, fine: bool = False) -> KnobValue:
    """The neighbour of `value`: the next choice, or the next round number (fine: the next number) in range.

    An optional knob has "auto" (None) below its lowest value.
    """
    if knob.type is bool:
        return not value
    if knob.type is str and not knob.choices:
        return value
    if knob.choices:
        if value not in knob.choices:  # a person's own: on to the first or the last of ours
            return knob.choices[0 if direction > 0 else -1]
        return knob.choices[(knob.choices.index(str(value)) + direction) % len(knob.choices)]
    low, high = knob.low or 0, knob.high if knob.high is not None else float("inf")
    if value is None:
        return knob.type(low) if direction > 0 else None
    assert isinstance(value, int | float)
    if knob.type is float:
        return _next_float(knob, value, direction, fine=fine)
    if fine:
        new: float = value + direction
    else:
        new = _round_number(int(value), direction)
    if new < low:
        return None if knob.optional else int(low)
    return int(min(high, new))


def _next_float(knob: Knob, value: float, direction: int, *, fine: bool) -> float | None:
    """Small steps in a small range; 1, 2, 5, 10, 20, ... in a wide one."""
    low, high = knob.low or 0.0, knob.high if knob.high is not None else float("inf")
    if high <= 10:
        new = round(value + direction * (0.01 if fine else 0.05), 4)
    elif fine:
        new = round(value + direction * 0.1, 4)
    else:
        rungs = [0.0, *(base * 10.0**power for power in range(-1, 7) for base in (1, 2, 5))]
        if direction > 0:
            new = next((round(rung, 4) for rung in rungs if rung > value + 1e-9), high)
        else:
            new = next((round(rung, 4) for rung in reversed(rungs) if rung < value - 1e-9), low - 1)
    if new < low:
        return None if knob.optional else low
    return min(high, new)


_LADDER = sorted({0, *range(1, 9), *(1 << n for n in range(3, 25)), *(3 << n for n in range(2, 23))})


def _round_number(value: int, direction: int) -> int:
    """1..8, then 12, 16, 24, 32, 48, ...: powers of two and the middles between them."""
    if direction > 0:
        at = bisect_right(_LADDER, value)
        return _LADDER[min(at, len(_LADDER) - 1)]
    at = bisect_left(_LADDER, value)
    return _LADDER[at - 1] if at > 0 else value - 1


def next_pace(pace: float | None, direction: int) -> float | None:
    """One rung up or down the ladder of paces."""
    infinite = float("inf")
    now = infinite if pace is None else pace
    rungs = [infinite if rung is None else rung for rung in PACES]
    if direction > 0:
        new = next((rung for rung in rungs if rung > now), infinite)
    else:
        new = next((rung for rung in reversed(rungs) if rung < now), rungs[0])
    return None if new == infinite else new


def pace_text(pace: float | None) -> str:
    return "max" if pace is None else f"{pace:g}/s"
