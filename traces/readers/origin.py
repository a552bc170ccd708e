"""Where a workload came from and how its times were understood, to be shown before anything runs: a wrong unit or an
invented file is seen by its span and rate."""

from __future__ import annotations

from dataclasses import dataclass

from traces.readers.times import show_ns, show_span
from traces.rows import Report

RATES = (0.001, 10_000.0)
"""Requests a second. Outside of these the unit of the times is more likely wrong than the file is strange."""


@dataclass(frozen=True, slots=True)
class Origin:
    format: str
    """Name of the reader."""
    title: str
    unit: str
    """s, ms, us, ns or date; "" when no row has a time."""
    base_ns: int | None
    """The earliest time, as in the file, that became 0; None when times were not moved."""
    span_ns: int
    """From the earliest to the latest."""
    timed: int
    """Rows with a time."""

    @property
    def span_s(self) -> float:
        return self.span_ns / 1e9

    @property
    def rate(self) -> float | None:
        """Requests a second over the span; None when all come at once."""
        return self.timed / self.span_s if self.span_ns else None

    @property
    def line(self) -> str:
        """`time unit: ms (mooncake), span 58m57s, rebased from 1178625`"""
        if not self.timed:
            return f"no arrival times ({self.format}): all requests come at 0 s"
        unit = "dates" if self.unit == "date" else self.unit
        text = f"time unit: {unit} ({self.format}), span {show_span(self.span_s)}"
        if self.rate is not None:
            text += f", {self.rate:.3g} requests/s"
        return text if not self.base_ns else f"{text}, rebased from {show_ns(self.base_ns, self.unit)}"

    @property
    def warning(self) -> str | None:
        """What is suspicious about the rate."""
        if self.timed < 2 or self.rate is None or RATES[0] <= self.rate <= RATES[1]:
            return None
        text = f"{self.rate:.3g} requests/s over {show_span(self.span_s)} is unusual"
        if self.unit == "date":
            return f"{text}: is this the whole file?"
        return f"{text}: are the times in {self.unit}? --time-unit says another unit"


def account(report: Report) -> str:
    """`read 2,000 rows: 1,990 kept (3 failed at their source, not sent), 10 dropped (7 bad prompt_len, 3 not JSON)`"""
    text = f"read {report.read:,} rows: {report.kept:,} kept"
    if report.failed:
        text += f" ({report.failed:,} failed at their source, not sent)"
    if report.clamped:
        text += f", {sum(report.clamped.values()):,} values changed ({_reasons(report.clamped.most_common())})"
    if report.dropped:
        text += f", {sum(report.dropped.values()):,} dropped ({_reasons(report.dropped.most_common())})"
    return text


def reasons(report: Report) -> str:
    """Why rows were dropped, most frequent first."""
    return _reasons(report.dropped.most_common())


def _reasons(counts: list[tuple[str, int]]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in counts)
