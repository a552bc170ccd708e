"""A file of requests, opened: which format it is, its rows in columns, and the account of every row.

Invariant: `report.read == report.kept + dropped` at every moment; memory is flat whatever the file's size. Rows keep
their order and their times here; rebasing and sorting need all rows and are in `loading.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from engine.errors import WorkbenchError
from traces.readers.base import Container, Head, Reader
from traces.readers.choosing import choose
from traces.readers.chunks import one_by_one
from traces.readers.counting import Counting, find_name
from traces.readers.fields import BLOCK_ASKED, CLIENT_FOUND
from traces.readers.json_blocks import json_blocks
from traces.readers.parsing import Parsing
from traces.readers.registry import READERS
from traces.readers.sources import records_of
from traces.readers.table_blocks import table_blocks
from traces.rows import NO_TIME, Chunk, Drop, ReadOptions, Report

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
        self._head = head
        self._context = Parsing(head.path, options, self.report)
        self._counting = Counting(options, self._context, self.report)
        self._table = reader.table(head, self._context)
        self._last = NO_TIME
        if head.container is Container.CSV and not head.path.is_dir():
            self._check_columns()
        if self._table is None:
            self._counting.parse = reader.parse
            self._counting.client_field = options.client_from
        else:
            self._counting.parse = self._table.parse

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
        numbers = said and (said != "date" or (self._table is not None and self.report.kept))
        return self._context.number_unit(said) if numbers else said

    @property
    def problems(self) -> list[str]:
        """`FILE:LINE: what is wrong` of each bad row, the first 100,000."""
        return self._counting.problems

    def where(self, line: int) -> str:
        """`FILE:LINE` of a row."""
        return self._counting.where(line)

    def take_back(self, line: int, failed: bool, fault: Drop) -> None:
        """A kept row turns out to be of no use, seen beside the others: it counts as dropped."""
        self._counting.take_back(line, failed, fault)

    def chunks(self) -> Iterator[Chunk]:
        """The kept rows in file order. Raises WorkbenchError when the file turns out to be damaged."""
        head, context, counting = self._head, self._context, self._counting
        records = self.reader.records(head, context)
        if records is None and self._table is not None:
            made = table_blocks(head, self._table, counting)
        elif records is None and self.reader.lines is not None and head.container is Container.JSONL:
            made = json_blocks(head, self.reader.lines, context.number_unit(self.reader.unit), counting)
        else:
            made = one_by_one(records_of(head, context.note) if records is None else records, counting)
        for chunk in made:
            self._count(chunk)
            yield chunk
        self.report.check()
        if context.zoned and context.unzoned:
            context.note("some dates say their zone and some do not; those are taken as UTC")
        found = counting.client_found or CLIENT_FOUND in context.state
        if self.options.client_from and not found and self.report.kept:
            context.note(f"--client-from {self.options.client_from}: no row has that field")
        if self.options.id_block is not None and BLOCK_ASKED not in context.state and self.report.kept:
            context.note(f"--id-block {self.options.id_block}: no row has block ids without a length of their own")

    def _count(self, chunk: Chunk) -> None:
        times = chunk.t_ns[chunk.t_ns != NO_TIME]
        if len(times):
            self.report.inversions += int((times[1:] < times[:-1]).sum()) + bool(times[0] < self._last)
            self._last = int(times[-1])

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
        if (found := find_name(wanted, self._head.columns)) is None:
            columns = ", ".join(self._head.columns)
            raise WorkbenchError(f"--client-from: there is no column {wanted!r}; there are {columns}")
        self._counting.client_found = True
        return found
