"""Figures shared by all metrics: percentiles, rounding, and what counts as completed.

Percentiles interpolate linearly between the two nearest values (numpy's default). What was not measured is None.
"""

from __future__ import annotations

from array import array

import numpy as np

from engine.request import FinishReason

COMPLETED = (FinishReason.LENGTH, FinishReason.STOP)


def distribution(values: array[float]) -> dict[str, float | int | None]:
    """mean, p50, p90, p95, p99 (linear interpolation) and n; all but n are None when there is nothing."""
    names = ("p50", "p90", "p95", "p99")
    if not values:
        return {"mean": None, **dict.fromkeys(names), "n": 0}
    data = np.asarray(values)
    points = np.percentile(data, [50, 90, 95, 99])
    return {
        "mean": micro(float(data.mean())),
        **{name: micro(float(point)) for name, point in zip(names, points, strict=True)},
        "n": len(values),
    }


def minus(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def micro(value: float | None) -> float | None:
    """Six places: below a microsecond is noise of the clock."""
    return None if value is None else round(value, 6)
