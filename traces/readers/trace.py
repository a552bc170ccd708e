"""A file of requests, opened: which format it is, its rows in columns, and the account of every row.

Invariant: `report.read == report.kept + dropped` at every moment; memory is flat whatever the file's size. Rows keep
their order and their times here; rebasing and sorting need all rows and are in `loading.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.errors import WorkbenchError
from traces.readers.base import Container, Head, Reader
from traces.readers.choosing import choose
from traces.readers.columns import Lines, equals, has_zone, to_lengths, to_times
from traces.readers.fields import CLIENT_FOUND
from traces.readers.files import read_blocks
from traces.readers.jsonlines import JsonLines
from traces.readers.parsing import Parsing
from traces.readers.registry import READERS
from traces.readers.sources import csv_record, decoded, records_of
from traces.readers.table import Table
from traces.rows import CHUNK_ROWS, NO_TIME, Chunk, Drop, Flags, Ints, ReadOptions, Report, Row

PARSED_ROWS = 8192
"""Rows that were made one by one and are given on at once: with their fields they are a hundred times as large."""
FAILED = "failed at its source"
SENT_WITH_ONE = "failed at its source, sent with 1 token"
MOST_HELD = 4 << 20
"""Bytes of texts and ids in a chunk, about: prompts of whole conversations must not fill the memory."""
MOST_PROBLEMS = 100_000
"""Bad rows whose text is kept for an error that lists them."""
_FAILED_OPTIONS = ("keep", "drop", "min1")
_SHORT_IDS_OPTIONS = ("reject", "tail")


def open_trace(path: Path, options: ReadOptions = ReadOptions()) -> Trace:  # noqa: B008 (it is frozen)
    """Looks at the content, never at the name. Raises WorkbenchError: see `choosing.choose`."""
    path = Path(path)
    for name, value, allowed in (
        ("--failed", options.failed, _FAILED_OPTIONS),
        ("--short-ids", options.short_ids, _SHORT_IDS_OPTIONS),
    ):
        if value not in allowed:
            raise WorkbenchError(f"{name}: {value!r} is none of {', '.join(allowed)}")
    reader, head = choose(path, options, READERS)
    return Trace(reader, head, options)


class Trace:
    """Use `chunks` once; `report` and `unit` are complete when it has ended."""

    def __init__(self, reader: Reader, head: Head, options: ReadOptions) -> None:
        self.path = head.path
        self.reader = reader
        self.options = options
        self.report = Report()
        self.problems: list[str] = []
        """`FILE:LINE: what is wrong` of each dropped row, the first MOST_PROBLEMS."""
        self._head = head
        self._context = Parsing(head.path, options, self.report)
        self._table = reader.table(head, self._context)
        self._client_found = False
        self._last = NO_TIME
        if head.container is Container.CSV and not head.path.is_dir():
            self._check_columns()

    @property
    def format(self) -> str:
        return self.reader.name

    @property
    def title(self) -> str:
        return self.reader.title

    @property
    def container(self) -> str:
        """csv, jsonl or json."""
        return self._head.container.value

    @property
    def unit(self) -> str:
        """s, ms, us, ns or date; "" without times."""
        said = self._table.unit if self._table is not None and self._table.time else self.reader.unit
        if self._context.dated:
            return "date"
        return self._context.number_unit(said) if said and said != "date" else said

    def chunks(self) -> Iterator[Chunk]:
        """The kept rows in file order. Raises WorkbenchError when the file turns out to be damaged."""
        records = self.reader.records(self._head, self._context)
        if records is None and self._table is not None:
            made = self._blocks(self._table)
        elif records is None and self.reader.lines is not None and self._head.container is Container.JSONL:
            made = self._json_blocks(self.reader.lines)
        else:
            made = self._parsed(records_of(self._head, self._context.note) if records is None else records)
        for chunk in made:
            self._count(chunk)
            yield chunk
        self.report.check()
        if self._context.zoned and self._context.unzoned:
            self._context.note("some dates say their zone and some do not; those are taken as UTC")
        found = self._client_found or CLIENT_FOUND in self._context.state
        if self.options.client_from and not found and self.report.kept:
            self._context.note(f"--client-from {self.options.client_from}: no row has that field")

    def _count(self, chunk: Chunk) -> None:
        times = chunk.t_ns[chunk.t_ns != NO_TIME]
        if len(times):
            self.report.inversions += int((times[1:] < times[:-1]).sum()) + bool(times[0] < self._last)
            self._last = int(times[-1])

    # Columns ---------------------------------------------------------------------------------------------------------

    def _check_columns(self) -> None:
        names = [name for name in self._head.columns if name]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise WorkbenchError(f"{self.path}: the column {twice[0]!r} is there twice; rename one")
        if self._table is None:
            return
        if missing := [name for name in self._table.used if name not in names]:
            raise WorkbenchError(
                f"{self.path}: {self.format} needs the column {missing[0]!r}; there are {', '.join(names)}"
            )
        if self.options.client_from:
            texts = [pair for pair in self._table.texts if pair[1] != "client"]
            self._table = dataclasses.replace(self._table, texts=(*texts, (self._client_column(), "client")))
        if extra := [name for name in names if name not in self._table.used and name not in self._table.known]:
            self._context.note(f"columns that are not used: {', '.join(extra)}")
        if self._head.has_header and self.options.columns:
            self._context.note("the file has a header of its own; the names given with --columns hold")

    def _client_column(self) -> str:
        wanted = self.options.client_from or ""
        if (found := _find(wanted, self._head.columns)) is None:
            columns = ", ".join(self._head.columns)
            raise WorkbenchError(f"--client-from: there is no column {wanted!r}; there are {columns}")
        self._client_found = True
        return found

    # Row by row ------------------------------------------------------------------------------------------------------

    def _parsed(self, records: Iterable[tuple[int, Any]]) -> Iterator[Chunk]:
        lines: list[int] = []
        rows: list[Row] = []
        held = 0
        for line, record in records:
            for row in self._rows(line, record):
                lines.append(line)
                rows.append(row)
                held += _size(row)
            if len(rows) >= PARSED_ROWS or held > MOST_HELD:
                yield from _in_chunks(lines, rows)
                lines, rows, held = [], [], 0
        yield from _in_chunks(lines, rows)

    def _rows(self, line: int, record: Any) -> Iterator[Row]:
        """The kept rows of a record; the others are counted."""
        found = 0
        self._context.line = line
        try:
            if isinstance(record, Drop):
                raise record
            made = record if isinstance(record, Row) else self._parse(record)
            for row in (made,) if isinstance(made, Row) else made:
                found += 1
                if isinstance(row, Drop):
                    self._drop(line, row)
                elif kept := self._settle(line, row, record):
                    yield kept
            if not found:
                raise Drop("a record without requests")
        except Drop as fault:
            self._drop(line, fault)
        except KeyError as error:
            self._drop(line, Drop(f"no {error.args[0]}"))

    def _parse(self, record: Any) -> Row | Iterable[Row | Drop]:
        if self._table is not None:
            return self._table.parse(record, self._context)
        return self.reader.parse(record, self._context)

    def _settle(self, line: int, row: Row, record: Any) -> Row | None:
        """What becomes of a row that could be read, by the options; None when it is dropped."""
        wanted = self.options.client_from
        if wanted and self._table is None:
            name = _find(wanted, record) if isinstance(record, Mapping) else None
            value = row.more.get(wanted) if name is None else record[name]
            if isinstance(value, str | int) and str(value).strip():
                row.more = {**row.more, "client": str(value)}
                self._client_found = True
        if row.failed or row.prompt_len == 0 or row.output_len == 0:
            row.failed = True
            if self.options.failed == "drop":
                self._drop(line, _failure(row))
                return None
            if self.options.failed == "min1":
                row.failed = False
                row.prompt_len = None if row.prompt_len is None else max(row.prompt_len, 1)
                row.output_len = None if row.output_len is None else max(row.output_len, 1)
                row.clamped = (*row.clamped, SENT_WITH_ONE)
        self.report.read += 1
        self.report.kept += 1
        self.report.failed += row.failed
        for reason in row.clamped:
            self.report.clamped[reason] += 1
            self.report.example(reason, f"{self.path}:{line}")
        return row

    def _drop(self, line: int, fault: Drop) -> None:
        where = f"{self.path}:{line}"
        self.report.drop(where, fault)
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{where}: {fault.detail or fault.reason}")

    # Block by block --------------------------------------------------------------------------------------------------

    def _blocks(self, table: Table) -> Iterator[Chunk]:
        header = self._head.has_header
        for number, block in read_blocks(self.path):
            lines = Lines(block, self._head.delimiter, len(self._head.columns))
            skip = -1
            if header:
                skip = next((at for at in range(len(lines)) if lines.line(at).strip()), -1)
                if header := skip < 0:
                    continue
            yield from self._block(table, lines, number, skip)

    def _block(self, table: Table, lines: Lines, number: int, skip: int) -> Iterator[Chunk]:
        """The rows of one block. `skip`: the last line that is no data (the header), -1 for none."""
        lines.clean[: skip + 1] = False
        at = np.flatnonzero(lines.clean)
        index = {name: place for place, name in enumerate(self._head.columns)}
        prompt, good = to_lengths(lines.bytes, *lines.cells(at, index[table.prompt]))
        output, right = to_lengths(lines.bytes, *lines.cells(at, index[table.output]))
        good &= right
        times = np.full(len(at), NO_TIME)
        if table.time:
            start, end = lines.cells(at, index[table.time])
            times, right = to_times(lines.bytes, start, end, self._context.number_unit(table.unit))
            good &= right
            zoned, unzoned = has_zone(lines.bytes, start[good], end[good])
            self._context.zoned |= zoned
            self._context.unzoned |= unzoned
        if table.only is not None:
            good &= equals(lines.bytes, *lines.cells(at, index[table.only[0]]), table.only[1].encode())
        failed = ((prompt == 0) | (output == 0)) & good
        odd = np.ones(len(lines), np.bool_)
        odd[: skip + 1] = False
        odd[at[good & ~failed] if self.options.failed != "keep" else at[good]] = False
        drops: dict[int, Row] = {}
        if self.options.failed == "drop":
            rows = zip(at[failed].tolist(), prompt[failed].tolist(), output[failed].tolist(), strict=True)
            drops = {place: Row(None, prompt_len, output_len) for place, prompt_len, output_len in rows}
        if self.options.failed != "keep":
            good &= ~failed
        at, prompt, output, times, failed = at[good], prompt[good], output[good], times[good], failed[good]
        self.report.read += len(at)
        self.report.kept += len(at)
        self.report.failed += int(failed.sum())
        more = self._texts(table, lines, at, index)
        kept_lines, kept_rows = self._odd(lines, np.flatnonzero(odd), number, drops)
        yield from _merged(at + number, times, prompt, output, failed, more, kept_lines, kept_rows)

    def _texts(self, table: Table, lines: Lines, at: Ints, index: dict[str, int]) -> list[dict[str, Any]] | None:
        if not table.texts:
            return None
        text = lines.bytes.tobytes()
        more: list[dict[str, Any]] = [{} for _ in range(len(at))]
        for column, name in table.texts:
            start, end = lines.cells(at, index[column])
            known: dict[bytes, str] = {}
            for row, first, last in zip(more, start.tolist(), end.tolist(), strict=True):
                raw = text[first:last]
                if (value := known.get(raw)) is None:
                    value = known[raw] = raw.decode().strip()
                if value:
                    row[name] = value
        return more

    def _odd(self, lines: Lines, at: Ints, number: int, drops: dict[int, Row]) -> tuple[list[int], list[Row]]:
        """Lines that need a closer look, read one by one; of `drops` it is known what they are."""
        kept_lines: list[int] = []
        kept_rows: list[Row] = []
        for place in at.tolist():
            if (row := drops.get(place)) is not None:
                self._settle(number + place, row, None)
                continue
            raw = lines.line(place).rstrip(b"\r")
            if not raw or raw.isspace():
                continue
            try:
                record: Any = csv_record(raw, self._head)
            except Drop as fault:
                record = fault
            for row in self._rows(number + place, record):
                kept_lines.append(number + place)
                kept_rows.append(row)
        return kept_lines, kept_rows

    def _json_blocks(self, fast: JsonLines) -> Iterator[Chunk]:
        unit = self._context.number_unit(self.reader.unit)
        for number, block in read_blocks(self.path):
            columns = None if self.options.client_from else fast.columns(block, unit)
            if columns is None:
                kept_lines, kept_rows = self._odd_json(number, enumerate(block.split(b"\n")))
                if kept_rows:
                    yield Chunk.of(kept_lines, kept_rows)
                continue
            at = np.flatnonzero(columns.clean)
            self.report.read += len(at)
            self.report.kept += len(at)
            kept_lines, kept_rows = [], []
            more = columns.more
            if len(at) < len(more):
                raw = block.split(b"\n")
                kept_lines, kept_rows = self._odd_json(
                    number, ((place, raw[place]) for place in np.flatnonzero(~columns.clean).tolist())
                )
                more = [more[place] for place in at.tolist()]
            t_ns, prompt, output = (column[at] for column in columns[:3])
            yield from _merged(
                at + number, t_ns, prompt, output, np.zeros(len(at), np.bool_), more, kept_lines, kept_rows
            )

    def _odd_json(self, number: int, lines: Iterable[tuple[int, bytes]]) -> tuple[list[int], list[Row]]:
        kept_lines: list[int] = []
        kept_rows: list[Row] = []
        for place, raw in lines:
            if not raw or raw.isspace():
                continue
            for row in self._rows(number + place, decoded(raw)):
                kept_lines.append(number + place)
                kept_rows.append(row)
        return kept_lines, kept_rows


def _in_chunks(lines: list[int], rows: list[Row]) -> Iterator[Chunk]:
    for at in range(0, len(rows), CHUNK_ROWS):
        yield Chunk.of(lines[at : at + CHUNK_ROWS], rows[at : at + CHUNK_ROWS])


def _size(row: Row) -> int:
    """Bytes, roughly, of texts and ids: what can be large in a row."""
    more = row.more
    size = len(more.get("prompt") or "")
    if "messages" in more:
        size += sum(len(content) for _, content in more["messages"])
    return size + 16 * (len(more.get("prompt_ids") or ()) + len(more.get("prefix_ids", ())))


def _merged(
    line: Ints,
    times: Ints,
    prompt: Ints,
    output: Ints,
    failed: Flags,
    more: list[dict[str, Any]] | None,
    odd_lines: list[int],
    odd_rows: list[Row],
) -> Iterator[Chunk]:
    """Chunks of both kinds of rows in order of their lines."""
    if odd_rows:
        odd = Chunk.of(odd_lines, odd_rows)
        if more is not None or odd.more is not None:
            more = [*(more or [{}] * len(line)), *(odd.more or [{}] * len(odd))]
        line = np.concatenate((line, odd.line))
        order = np.argsort(line, kind="stable")
        line = line[order]
        times = np.concatenate((times, odd.t_ns))[order]
        prompt = np.concatenate((prompt, odd.prompt_len))[order]
        output = np.concatenate((output, odd.output_len))[order]
        failed = np.concatenate((failed, odd.failed))[order]
        more = None if more is None else [more[place] for place in order.tolist()]
    for at in range(0, len(line), CHUNK_ROWS):
        part = slice(at, at + CHUNK_ROWS)
        texts = None if more is None or not any(more[part]) else more[part]
        yield Chunk(line[part], times[part], prompt[part], output[part], failed[part], texts)


def _failure(row: Row) -> Drop:
    if row.prompt_len == 0 or row.output_len == 0:
        return Drop(FAILED, f"lengths {row.prompt_len} and {row.output_len}")
    return Drop(FAILED)


def _find(wanted: str, names: Iterable[str]) -> str | None:
    """A column or field by its name, in any spelling: `log_type` is "Log Type", `session` is "session_id", too."""
    by_plain = {_plain(name): name for name in reversed(list(names))}
    plain = _plain(wanted)
    return by_plain.get(plain) or by_plain.get(plain + "_id")


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
