"""A trace file as requests, with the account of what became of every row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from traces.rows import ReadOptions, Report

if TYPE_CHECKING:
    from traces.workload import Workload

SHOWN = 2
"""Rows named for each reason."""
ROOM = 100_000
"""More rows than a limit asks for that are read: they may not be in order of time, and some are left out."""


class Trace(NamedTuple):
    workload: Workload
    account: list[str]
    """Lines for people: format, unit, span, rate; read, kept, failed, clamped and dropped with reasons."""


def read_trace(path: Path, options: ReadOptions, *, limit: int | None = None) -> Trace:
    """limit: about so many requests are wanted, so the rest of a long file need not be read."""
    from traces.readers import read_workload
    from traces.readers.origin import account

    workload = read_workload(path, options, limit=None if limit is None else 2 * limit + ROOM)
    origin, report = workload.origin, workload.report
    lines = []
    if origin is not None and report is not None:
        lines = [f"{path}: {origin.title}", origin.line, account(report), *_examples(report)]
    said = {line.rpartition(f"{path}: ")[2] for line in lines}
    for note in workload.notes:
        text = note.removeprefix(f"{path}: ")
        if text not in said and not (report is not None and "bad rows skipped" in text):
            lines.append(text)
    return Trace(workload, lines)


def _examples(report: Report) -> list[str]:
    lines = []
    for reason, seen in report.examples.items():
        count = report.dropped[reason] + report.clamped[reason]
        more = f" (and {count - SHOWN:,} more)" if count > SHOWN else ""
        lines.append(f"  {reason}: {'; '.join(seen[:SHOWN])}{more}")
    return lines
