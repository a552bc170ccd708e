"""A trace file as requests, with the account of what became of every row."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from traces.rows import ReadOptions
from traces.workload import Workload


class Trace(NamedTuple):
    workload: Workload
    account: tuple[str, ...]
    """Lines for people: format, unit, span, rate; read, kept, failed, clamped and dropped with reasons."""


def read_trace(path: Path, options: ReadOptions) -> Trace:
    from traces.readers.native import read_workload

    workload = read_workload(path, skip_bad=not options.strict)
    return Trace(workload, (*workload.notes, *workload.skipped))
