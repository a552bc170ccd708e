"""A CSV file with a `Table`, block by block: clean lines by whole columns, the others one by one.

Invariant: both ways give the same rows and the same account (see `columns.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from traces.readers.base import Head
from traces.readers.chunks import merged
from traces.readers.columns import Lines, equals, has_zone, to_lengths, to_times
from traces.readers.counting import Counting
from traces.readers.files import read_blocks
from traces.readers.sources import csv_record
from traces.readers.table import Table
from traces.rows import NO_TIME, Chunk, Drop, Ints, Row


def table_blocks(head: Head, table: Table, counting: Counting) -> Iterator[Chunk]:
    rows = _Rows(head, table, counting)
    header = head.has_header
    for number, block in read_blocks(head.path):
        lines = Lines(block, head.delimiter, len(head.columns))
        skip = min(head.before - number, len(lines) - 1)
        if header:
            skip = next((at for at in range(max(skip + 1, 0), len(lines)) if lines.line(at).strip()), -1)
            if header := skip < 0:
                continue
        yield from rows.of(lines, number, skip)


class _Rows:
    def __init__(self, head: Head, table: Table, counting: Counting) -> None:
        self._head = head
        self._table = table
        self._counting = counting
        self._index = {name: place for place, name in enumerate(head.columns)}

    def of(self, lines: Lines, number: int, skip: int) -> Iterator[Chunk]:
        """The rows of one block. `number`: of its first line. `skip`: the last line that is no data (the header), -1
        for none."""
        table, failed_rows = self._table, self._counting.options.failed
        lines.clean[: max(skip + 1, 0)] = False
        at = np.flatnonzero(lines.clean)
        prompt, good = to_lengths(lines.bytes, *self._cells(lines, at, table.prompt))
        output, right = to_lengths(lines.bytes, *self._cells(lines, at, table.output))
        good &= right
        times = np.full(len(at), NO_TIME)
        if table.time:
            start, end = self._cells(lines, at, table.time)
            times, right = to_times(lines.bytes, start, end, self._counting.context.number_unit(table.unit))
            good &= right
            self._counting.context.see_zones(*has_zone(lines.bytes, start[good], end[good]))
        if table.only is not None:
            good &= equals(lines.bytes, *self._cells(lines, at, table.only[0]), table.only[1].encode())
        failed = ((prompt == 0) | (output == 0)) & good
        drops: dict[int, Row] = {}
        if failed_rows == "drop":
            lengths = zip(at[failed].tolist(), prompt[failed].tolist(), output[failed].tolist(), strict=True)
            drops = {place: Row(None, prompt_len, output_len) for place, prompt_len, output_len in lengths}
        if failed_rows != "keep":
            good &= ~failed
        at, prompt, output, times, failed = at[good], prompt[good], output[good], times[good], failed[good]
        odd = np.ones(len(lines), np.bool_)
        odd[: max(skip + 1, 0)] = False
        odd[at] = False
        self._counting.keep(len(at), int(failed.sum()))
        more = self._texts(lines, at)
        odd_lines, odd_rows = self._odd(lines, np.flatnonzero(odd), number, drops)
        yield from merged(at + number, times, prompt, output, failed, more, odd_lines, odd_rows)

    def _cells(self, lines: Lines, at: Ints, column: str) -> tuple[Ints, Ints]:
        return lines.cells(at, self._index[column])

    def _texts(self, lines: Lines, at: Ints) -> list[dict[str, Any]] | None:
        if not self._table.texts:
            return None
        text = lines.bytes.tobytes()
        more: list[dict[str, Any]] = [{} for _ in range(len(at))]
        for column, name in self._table.texts:
            start, end = self._cells(lines, at, column)
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
        odd_lines: list[int] = []
        odd_rows: list[Row] = []
        for place in at.tolist():
            if (row := drops.get(place)) is not None:
                self._counting.settle(number + place, row)
                continue
            raw = lines.line(place).rstrip(b"\r")
            if not raw or raw.isspace():
                continue
            try:
                record: Any = csv_record(raw, self._head)
            except Drop as fault:
                record = fault
            for row in self._counting.rows(number + place, record):
                odd_lines.append(number + place)
                odd_rows.append(row)
        return odd_lines, odd_rows
