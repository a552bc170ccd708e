"""A CSV file whose rows are a time, two lengths and perhaps texts: which columns hold them.

Invariant: the rules for a cell are those of `parse`, row by row. `columns.py` converts whole blocks at once and takes
only cells that cannot be read in two ways; each other row comes through `parse`, so both give the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from traces.rows import Drop, Row

if TYPE_CHECKING:
    from traces.readers.base import Context


@dataclass(frozen=True, slots=True)
class Table:
    prompt: str
    """Column of prompt lengths."""
    output: str
    time: str = ""
    """Column of times; "" when there is none."""
    unit: str = "s"
    """Of times that are numbers; dates are seen to be dates."""
    texts: tuple[tuple[str, str], ...] = ()
    """(column, field of `RequestSpec` it fills): id, client, session. An empty cell fills nothing."""
    known: tuple[str, ...] = ()
    """Columns that are understood and not needed; others are told to be extra."""
    only: tuple[str, str] | None = None
    """(column, the text it must have): other rows are no requests."""

    @property
    def used(self) -> tuple[str, ...]:
        columns = (self.time, self.prompt, self.output, *(column for column, _ in self.texts), (self.only or ("",))[0])
        return tuple(filter(None, columns))

    def parse(self, record: Mapping[str, str], context: Context) -> Row:
        if self.only is not None and record[self.only[0]] != self.only[1]:
            raise Drop("no request", f"{self.only[0]} is {record[self.only[0]]!r}, not {self.only[1]!r}")
        t_ns = context.time(record[self.time], self.unit) if self.time else None
        prompt_len = context.length(self.prompt, record[self.prompt])
        output_len = context.length(self.output, record[self.output])
        more = {name: record[column] for column, name in self.texts if record[column]}
        return Row(t_ns, prompt_len, output_len, more=more)
