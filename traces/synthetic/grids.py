"""Quantile grids of real traces: `data/quantiles.json`, and two sets of which only some percentiles are published.

A value is drawn by the piecewise-linear inverse of the distribution, so quantiles are those of the trace and means are
a little high where the last points lie far apart.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from functools import cache
from importlib import resources
from itertools import pairwise
from typing import Any, NamedTuple


class Grid(NamedTuple):
    percents: tuple[float, ...]
    """0 to 100, ascending."""
    values: tuple[float, ...]

    def at(self, share: float) -> float:
        """The value below which this share (0..1) lies."""
        percent = share * 100
        place = min(max(bisect_right(self.percents, percent), 1), len(self.percents) - 1)
        low, high = self.percents[place - 1], self.percents[place]
        start, end = self.values[place - 1], self.values[place]
        return start + (end - start) * (percent - low) / (high - low)

    @property
    def mean(self) -> float:
        steps = zip(pairwise(self.percents), pairwise(self.values), strict=True)
        return sum((end - start) / 100 * (low + high) / 2 for (start, end), (low, high) in steps)


class Lengths(NamedTuple):
    """Prompt and output tokens."""

    prompt: Grid
    output: Grid


_PUBLISHED = (0.0, 50.0, 90.0, 95.0, 99.0, 100.0)
DEEPSEEK_R1 = Lengths(
    Grid(_PUBLISHED, (1, 208, 2092, 6714, 23423, 57284)),
    Grid(_PUBLISHED, (1, 792, 3432, 5701, 12607, 32768)),
)
"""ServeGen, 1.38 million requests of a day. Nothing is published below the median: a straight line from 1."""

_POINTS = (0.0, 1.0, 5.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9, 100.0)
RAG_PASSAGE = Grid(_POINTS, (3, 68, 129, 150, 204, 284, 326, 360, 378, 405, 489, 512))
"""RAGPulse: tokens of a passage."""
RAG_HISTORY = Grid(_POINTS, (10, 10, 11, 11, 11, 11, 378, 820, 1164, 1931, 2894, 2995))
"""RAGPulse: tokens of what was said before; 11 stand for nothing."""


@cache
def quantiles(trace: str, name: str) -> Grid:
    """One grid of quantiles.json: `quantiles("azure2023_conv", "output")`."""
    tables = _tables()
    return Grid(tuple(map(float, tables["_p"])), tuple(map(float, tables[trace][name])))


def lengths(trace: str) -> Lengths:
    return Lengths(quantiles(trace, "input"), quantiles(trace, "output"))


@cache
def _tables() -> dict[str, Any]:
    text = resources.files("traces").joinpath("data", "quantiles.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables
