"""A file to requests that can run: rebased, in order of arrival, with ids of their own and an account of every row.

Invariant: times are whole nanoseconds until the very last step; the earliest good row is 0; equal times keep the order
of the file; `where` still names the row. What was changed on the way is in `Workload.notes` and `Workload.report`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.errors import WorkbenchError
from traces.errors import WorkloadError
from traces.readers.counting import FAILED
from traces.readers.links import Link, resolve
from traces.readers.origin import Origin, account, reasons
from traces.readers.trace import Trace, open_trace
from traces.rows import NO_TIME, Chunk, Drop, ReadOptions, Report
from traces.workload import RequestSpec, Workload

MOST_SKIPPED = 20
"""Bad rows that are shown one by one when a person has them left out."""
_SET_HERE = ("id", "after")


def read_workload(
    path: Path,
    options: ReadOptions = ReadOptions(),  # noqa: B008 (it is frozen)
    *,
    limit: int | None = None,
    keep: Callable[[Chunk], Chunk] | None = None,
) -> Workload:
    """All requests of a file, in order of arrival.

    keep: the part of each chunk that becomes requests; the others are counted as read and forgotten.
    limit: stop reading after that many kept rows (of the file's order); memory grows with the rows that are kept.
    Raises WorkbenchError for a file that is none or holds no usable row, WorkloadError with `options.strict` naming
    every bad row.
    """
    trace = open_trace(path, options)
    lines: list[int] = []
    times: list[int] = []
    rows: list[dict[str, Any]] = []
    for chunk in trace.chunks():
        if keep is not None:
            chunk = keep(chunk)
        lines += chunk.line.tolist()
        times += chunk.t_ns.tolist()
        rows += _fields(chunk)
        if limit is not None and len(rows) >= limit:
            del lines[limit:], times[limit:], rows[limit:]
            trace.report.notes.append(f"only the first {limit:,} rows were used")
            break
    if trace.reader.unique_ids:
        lines, times, rows = _without_repeats(trace, lines, times, rows)
    _check(trace, len(rows))
    timed = [t for t in times if t != NO_TIME]
    low, high = min(timed, default=0), max(timed, default=0)
    base = 0 if trace.reader.from_start else low
    origin = Origin(
        trace.format, trace.title, trace.unit, None if trace.reader.from_start else base, high - low, len(timed)
    )
    order = sorted(range(len(rows)), key=lambda row: 0 if times[row] == NO_TIME else times[row] - base)
    ids, by_source, renamed = _ids(rows, lines, order)
    links = [
        Link(id, row.get("session"), row.get("turn"), row.get("after"), row["failed"])
        for id, row in zip(ids, (rows[at] for at in order), strict=True)
    ]
    resolved = resolve(links, by_source, closed_loop=trace.reader.closed_loop)
    specs = []
    for place, at in enumerate(order):
        row, parent = rows[at], resolved.after[place]
        for name in _SET_HERE:
            row.pop(name, None)
        specs.append(
            RequestSpec(
                ids[place],
                0.0 if times[at] == NO_TIME else (times[at] - base) / 1e9,
                after=None if parent is None else ids[parent],
                where=trace.where(lines[at]),
                **row,
            )
        )
    notes = _notes(trace, origin, len(rows), renamed)
    unstamped = sum(times[at] == NO_TIME and resolved.after[place] is None for place, at in enumerate(order))
    if timed and unstamped:
        notes.append(f"{path}: {unstamped} of {len(rows)} rows have no arrival and come at 0 s")
    skipped = tuple(trace.problems[:MOST_SKIPPED])
    return Workload(str(path), tuple(specs), skipped, (*notes, *resolved.notes), origin=origin, report=trace.report)


def _fields(chunk: Chunk) -> list[dict[str, Any]]:
    """What is known of each row besides its time, as RequestSpec names it."""
    lengths = zip(chunk.prompt_len.tolist(), chunk.output_len.tolist(), chunk.failed.tolist(), strict=True)
    more = chunk.more or [{}] * len(chunk)
    return [
        {
            "prompt_len": prompt if prompt or not _has_text(fields) else None,
            "output_len": output or (0 if failed else None),
            "failed": failed,
            **fields,
        }
        for (prompt, output, failed), fields in zip(lengths, more, strict=True)
    ]


def _without_repeats(
    trace: Trace, lines: list[int], times: list[int], rows: list[dict[str, Any]]
) -> tuple[list[int], list[int], list[dict[str, Any]]]:
    """Rows whose id another row has were read well and are dropped after all."""
    first: dict[str, int] = {}
    kept = []
    for at, row in enumerate(rows):
        id = row.get("id")
        if id is None or first.setdefault(id, at) == at:
            kept.append(at)
        else:
            fault = Drop("bad id", f"field 'id': {id!r} is already the id of line {lines[first[id]]}")
            trace.take_back(lines[at], row["failed"], fault)
    if len(kept) == len(rows):
        return lines, times, rows
    return [lines[at] for at in kept], [times[at] for at in kept], [rows[at] for at in kept]


def _has_text(fields: dict[str, Any]) -> bool:
    return "prompt" in fields or "messages" in fields or "prompt_ids" in fields


def _check(trace: Trace, kept: int) -> None:
    report = trace.report
    if (bad := _bad(report)) and trace.options.strict:
        more = bad - len(trace.problems)
        hint = f"\n  ({more} more are not listed)" if more else ""
        raise WorkloadError(
            str(trace.path), trace.problems, hint + ("\n  (--skip-bad leaves bad rows out)" if kept else "")
        )
    if not kept:
        if report.kept:
            raise WorkbenchError(f"{trace.path}: none of its {report.kept:,} rows is left by what was asked for")
        if report.dropped:
            first = next(iter(report.examples.values()))[0]
            raise WorkbenchError(f"{trace.path} holds no good rows: {reasons(report)} (the first: {first})")
        raise WorkbenchError(f"{trace.path} holds no requests")
    if report.failed == report.kept:
        raise WorkbenchError(
            f"{trace.path} holds no rows to send: {report.failed:,} failed at their source (--failed min1 sends them)"
        )


def _bad(report: Report) -> int:
    """Dropped rows but for those that a person wanted to be dropped."""
    return sum(report.dropped.values()) - report.dropped[FAILED]


def _notes(trace: Trace, origin: Origin, kept: int, renamed: int) -> list[str]:
    report, path = trace.report, trace.path
    notes = []
    if bad := _bad(report):
        notes.append(f"{path}: {bad} bad rows skipped, {kept} left ({reasons(report)})")
    if origin.warning:
        notes.append(f"{path}: {origin.warning}")
    if report.inversions:
        step = "step" if report.inversions == 1 else "steps"
        notes.append(f"{path}: rows are not in order of arrival ({report.inversions} {step} back); arrival times hold")
    if renamed:
        notes.append(f"{path}: rows with an id that another row has: {renamed} (they got a number)")
    if not trace.reader.from_start:
        notes += [f"{path}: {origin.line}", f"{path}: {account(report)}"]
    return notes + [f"{path}: {note}" for note in report.notes]


def _ids(rows: list[dict[str, Any]], lines: list[int], order: list[int]) -> tuple[list[str], dict[str, int], int]:
    """(unique id of each row in order, the source's id to place in that order, how many had to be changed)."""
    of_line = Counter(lines)
    nth: Counter[int] = Counter()
    own: list[str] = []
    for row, line in zip(rows, lines, strict=True):
        nth[line] += 1
        own.append(row.get("id") or (f"line-{line}" if of_line[line] == 1 else f"line-{line}.{nth[line]}"))
    ids: list[str] = []
    by_source: dict[str, int] = {}
    taken: set[str] = set()
    all_own = set(own)
    next_number: Counter[str] = Counter()
    renamed = 0
    for place, at in enumerate(order):
        id = own[at]
        by_source.setdefault(id, place)
        if id in taken:
            renamed += 1
            while (candidate := f"{id}#{next_number[id] + 2}") in taken or candidate in all_own:
                next_number[id] += 1
            next_number[id] += 1
            id = candidate
        taken.add(id)
        ids.append(id)
    return ids, by_source, renamed
