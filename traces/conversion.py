"""From a trace in one format to a file in another, a chunk at a time where the rows are in order.

Arrivals are rebased to the earliest one. A file whose rows are not in order of time is read again into memory and
sorted (stably), because what is written has to be in order for other tools.
A row without a time that follows another one (closed loop) keeps its place behind the row before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from traces.readers.base import Reader
from traces.rows import NO_TIME, UNKNOWN, Chunk, Ints, Report
from traces.workload import RequestSpec
from traces.writers.base import Account, Writer

TELL_EVERY = 50_000
TEXTS = {"prompt", "messages", "prompt_ids"}


class Source(Protocol):
    """What is needed of an opened trace."""

    @property
    def report(self) -> Report: ...

    @property
    def unit(self) -> str: ...

    @property
    def path(self) -> Path: ...

    @property
    def reader(self) -> Reader: ...

    def chunks(self) -> Iterator[Chunk]: ...


@dataclass(frozen=True, slots=True)
class Converted:
    account: Account
    report: Report
    sorted_in_memory: bool
    untimed: int
    """Rows that had no time, and nothing to follow: they come at the start."""


class _OutOfOrder(Exception):
    pass


def convert(
    open_source: Callable[[], Source],
    make_writer: Callable[[int], Writer],
    open_out: Callable[[], AbstractContextManager[IO[str]]],
    *,
    say: Callable[[int], None] = lambda rows: None,
    check: Callable[[Converted], None] = lambda done: None,
) -> Converted:
    """Write every row that can be written.

    open_source: opens the file anew at each call. make_writer: given the absolute time of arrival 0 in ns (0 where the
    source's times are not dates). open_out: opens the output, which must vanish when the block raises; it may be opened
    twice. say: told the rows written, now and then. check: may raise at the end, before the output is closed.
    """

    def attempt(in_memory: bool) -> Converted:
        source = open_source()
        with open_out() as out:
            chunks = _sorted(list(source.chunks())) if in_memory else _in_order(source.chunks())
            done = _run(source, chunks, make_writer, out, say, in_memory=in_memory)
            check(done)
        return done

    try:
        return attempt(in_memory=False)
    except _OutOfOrder:
        return attempt(in_memory=True)


def _run(
    source: Source,
    chunks: Iterator[Chunk],
    make_writer: Callable[[int], Writer],
    out: IO[str],
    say: Callable[[int], None],
    *,
    in_memory: bool,
) -> Converted:
    writer: Writer | None = None
    specs = Specs(source)
    untimed = told = 0
    for chunk in chunks:
        for spec in specs.of(chunk):
            if writer is None:
                writer = make_writer(specs.base or 0 if source.unit == "date" else 0)
                out.write(writer.header())
            if (line := writer.write(spec)) is not None:
                out.write(line)
        untimed += sum(_free(chunk, place) for place in np.flatnonzero(chunk.t_ns == NO_TIME).tolist())
        if writer is not None and writer.account.written - told >= TELL_EVERY:
            told = writer.account.written
            say(told)
    if writer is None:
        writer = make_writer(0)
        out.write(writer.header())
    return Converted(writer.account, source.report, in_memory, untimed)


class Specs:
    """Rows of chunks as request specs: rebased by `base` ns, with ids, and with turns that follow each other linked.

    Rows without an id of their own are called after their line, `line-7`, or `line-7.1`, `line-7.2` when it has
    several. Where the format says so, a turn of a session follows the turn before it in the order given.
    """

    def __init__(self, source: Source) -> None:
        self.base: int | None = None
        self._path = source.path
        self._from_start = source.reader.from_start
        self._last: dict[str, str] | None = {} if source.reader.closed_loop else None
        """Id of the latest row of each session."""

    def of(self, chunk: Chunk) -> Iterator[RequestSpec]:
        """The earliest row of the first chunk with times becomes 0, unless `base` is set."""
        timed = chunk.t_ns[chunk.t_ns != NO_TIME]
        if self.base is None and len(timed):
            self.base = 0 if self._from_start else int(timed.min())
        base = self.base or 0
        of_line = Counter(chunk.line.tolist())
        nth: Counter[int] = Counter()
        columns = (chunk.line, chunk.t_ns, chunk.prompt_len, chunk.output_len, chunk.failed)
        more = chunk.more or [{}] * len(chunk)
        for line, t_ns, prompt, output, failed, row in zip(*(column.tolist() for column in columns), more, strict=True):
            nth[line] += 1
            text = (not failed and prompt == UNKNOWN) or not row.keys().isdisjoint(TEXTS)
            values = {
                "id": f"line-{line}" if of_line[line] == 1 else f"line-{line}.{nth[line]}",
                "arrival": 0.0 if t_ns == NO_TIME else (t_ns - base) / 1e9,
                "prompt_len": None if text else prompt,
                "output_len": output or (0 if failed else None),
                "failed": failed,
                **row,
            }
            if self._last is not None:
                self._link(values, self._last)
            yield RequestSpec(**values, where=f"{self._path}:{line}")

    def _link(self, values: dict[str, Any], last: dict[str, str]) -> None:
        session = values.get("session")
        if session is not None and not values.get("after"):
            values["after"] = last.get(session)
        if not values.get("after"):
            values.pop("delay", None)
        if session is not None:
            last[session] = values["id"]


def first_specs(source: Source, n: int) -> list[RequestSpec]:
    """The first n rows in the file's order. Arrivals count from the earliest, or from where they did already."""
    chunks: list[Chunk] = []
    for chunk in source.chunks():
        chunks.append(_take(chunk, slice(n - sum(map(len, chunks)))))
        if sum(map(len, chunks)) >= n:
            break
    if not chunks:
        return []
    return list(Specs(source).of(_joined(chunks)))


def _take(chunk: Chunk, places: slice | Ints) -> Chunk:
    """Some rows of a chunk."""
    more = chunk.more
    if more is not None:
        more = more[places] if isinstance(places, slice) else [more[place] for place in places.tolist()]
    return Chunk(
        chunk.line[places],
        chunk.t_ns[places],
        chunk.prompt_len[places],
        chunk.output_len[places],
        chunk.failed[places],
        more,
    )


def _free(chunk: Chunk, place: int) -> bool:
    """Whether a row follows no other one."""
    return chunk.more is None or chunk.more[place].get("after") is None


def _in_order(chunks: Iterator[Chunk]) -> Iterator[Chunk]:
    """The chunks as long as their rows are in order of time; raises _OutOfOrder where they are not."""
    last: int | None = None
    for chunk in chunks:
        keys = _keys(chunk, last)
        if (last is not None and len(keys) and keys[0] < last) or (keys[1:] < keys[:-1]).any():
            raise _OutOfOrder
        last = int(keys[-1]) if len(keys) else last
        yield chunk


def _keys(chunk: Chunk, last: int | None) -> Ints:
    """What rows are sorted by: their time; that of the row before them for follow-ups without one."""
    missing = np.flatnonzero(chunk.t_ns == NO_TIME)
    if not len(missing):
        return chunk.t_ns
    keys = chunk.t_ns.copy()
    for place in missing.tolist():
        if not _free(chunk, place):
            keys[place] = keys[place - 1] if place else NO_TIME if last is None else last
    return keys


def _sorted(chunks: list[Chunk]) -> Iterator[Chunk]:
    if chunks:
        whole = _joined(chunks)
        yield _take(whole, np.argsort(_keys(whole, None), kind="stable"))


def _joined(chunks: list[Chunk]) -> Chunk:
    more = [row for chunk in chunks for row in chunk.more or [{}] * len(chunk)]
    return Chunk(
        np.concatenate([chunk.line for chunk in chunks]),
        np.concatenate([chunk.t_ns for chunk in chunks]),
        np.concatenate([chunk.prompt_len for chunk in chunks]),
        np.concatenate([chunk.output_len for chunk in chunks]),
        np.concatenate([chunk.failed for chunk in chunks]),
        more if any(chunk.more is not None for chunk in chunks) else None,
    )
