"""A trace file as requests, with the account of what became of every row."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from engine.errors import WorkbenchError
from traces.rows import NO_TIME, Chunk, ReadOptions, Report
from traces.scaling import window_line

if TYPE_CHECKING:
    from traces.workload import Workload

SHOWN = 2
"""Rows named for each reason."""
ROOM = 100_000
"""More rows than a limit asks for that are read: they may not be in order of time, and some are left out."""


LARGE = 32 << 20
"""Bytes of a file that is read twice for a window of time: first the times alone, then only the rows in it."""


class Trace(NamedTuple):
    workload: Workload
    account: list[str]
    """Lines for people: format, unit, span, rate; read, kept, failed, clamped and dropped with reasons."""
    windowed: bool = False
    """Only the rows of the window are here, from 0 on."""


def read_trace(
    path: Path,
    options: ReadOptions,
    *,
    limit: int | None = None,
    window: tuple[float | None, float | None] | None = None,
) -> Trace:
    """limit: about so many requests are wanted, so the rest of a long file need not be read.

    window: seconds from the first request on (None: open) outside of which rows are not wanted. It is applied here only
    to large files whose rows do not wait for each other; `Trace.windowed` says so. Memory follows the rows in it.
    """
    from traces.readers import read_workload
    from traces.readers.origin import account

    inside = _inside(path, options, window) if window is not None and _large(path) else None
    if inside is not None:
        workload = _from_zero(read_workload(path, options, keep=inside.keep))
    else:
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
    return Trace(workload, lines + ([inside.line] if inside is not None else []), inside is not None)


def _large(path: Path) -> bool:
    try:
        return path.stat().st_size >= LARGE
    except OSError:  # the reader says what is wrong
        return False


class _Inside:
    """The rows of a window."""

    def __init__(self, low: int, high: int | None, line: str) -> None:
        self._low, self._high, self.line = low, high, line

    def keep(self, chunk: Chunk) -> Chunk:
        inside = chunk.t_ns >= self._low
        if self._high is not None:
            inside &= chunk.t_ns < self._high
        if inside.all():
            return chunk
        more = chunk.more
        if more is not None:
            more = [more[at] for at in inside.nonzero()[0].tolist()]
        return Chunk(
            chunk.line[inside],
            chunk.t_ns[inside],
            chunk.prompt_len[inside],
            chunk.output_len[inside],
            chunk.failed[inside],
            more,
        )


def _inside(path: Path, options: ReadOptions, window: tuple[float | None, float | None]) -> _Inside | None:
    """None: rows without a time, or that wait for each other, are in the file, so all of it has to be looked at."""
    import numpy as np

    from traces.readers import open_trace

    times = []
    for chunk in open_trace(path, options).chunks():
        if chunk.more is not None and any("after" in fields or "session" in fields for fields in chunk.more):
            return None
        if len(chunk) and chunk.t_ns.min() == NO_TIME:
            return None
        times.append(chunk.t_ns)
    stamps = np.concatenate(times) if times else np.empty(0, np.int64)
    if not len(stamps):
        return None
    first, last = int(stamps.min()), int(stamps.max())
    start, end = window
    low = first + round(1e9 * (start or 0.0))
    high = None if end is None else first + round(1e9 * end)
    inside = int(((stamps >= low) & (stamps < (last + 1 if high is None else high))).sum())
    line = window_line(start, end, len(stamps) - inside, len(stamps), (last - first) / 1e9)
    if not inside:
        raise WorkbenchError(f"{path}: no request is left: {line}")
    return _Inside(low, high, line)


def _from_zero(workload: Workload) -> Workload:
    """Times of formats that count from their own zero are not moved by reading."""
    zero = min((spec.arrival for spec in workload.specs), default=0.0)
    if not zero:
        return workload
    specs = (dataclasses.replace(spec, arrival=spec.arrival - zero) for spec in workload.specs)
    return dataclasses.replace(workload, specs=tuple(specs))


def _examples(report: Report) -> list[str]:
    lines = []
    for reason, seen in report.examples.items():
        count = report.dropped[reason] + report.clamped[reason]
        more = f" (and {count - SHOWN:,} more)" if count > SHOWN else ""
        lines.append(f"  {reason}: {'; '.join(seen[:SHOWN])}{more}")
    return lines
