"""What a reader is: one small file a format, chosen by looking at a file's content.

A reader says how sure it is (`sniff`) and turns the file's records into rows (`parse`). Containers (CSV, JSON lines, a
JSON array or document, gzip, zstd), counting, units, rebasing and order are done once for all of them, elsewhere.
Columns and fields are taken by name, never by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

from traces.rows import ReadOptions, Row

NO, MAYBE, LIKELY, SURE = 0, 10, 50, 100
"""How sure a reader is that a file is its own."""


class Container(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    """One JSON value a line."""
    JSON = "json"
    """One array whose elements are the records, or one document."""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, unpacked and decoded."""

    path: Path
    container: Container
    columns: tuple[str, ...] = ()
    """CSV: the cells of the first line, stripped."""
    records: tuple[Any, ...] = ()
    """JSON: the first few records (of one document: the document itself, if it is small enough to be read whole).
    CSV: the cells of the first few lines after the first, as lists of strings."""
    is_array: bool = False
    """JSON: the file is an array."""

    @property
    def first(self) -> Mapping[str, Any]:
        """The first JSON object; empty when there is none."""
        return next((record for record in self.records if isinstance(record, dict)), {})


class Context(Protocol):
    """What `parse` may look at besides the record."""

    @property
    def options(self) -> ReadOptions: ...

    @property
    def path(self) -> Path: ...

    def time(self, value: Any, unit: str) -> int:
        """A time as integer nanoseconds: a number of `unit` (s, ms, us, ns; `--time-unit` wins), text that holds such
        a number, or a date of any common form (0-9 fraction digits, T or space, Z or an offset). Raises Drop."""
        ...

    def length(self, name: str, value: Any) -> int:
        """A length in tokens, 0 or more: 5, 5.0 or "5". Raises Drop for 5.5, negative, not finite, missing, huge."""
        ...

    def note(self, text: str) -> None:
        """Tell a person once, however often it is called with the same text."""
        ...


class Reader(Protocol):
    name: str
    """Short and for ever: `azure`, `mooncake`; `--format` takes it."""
    title: str
    """One line for people: what it is, unit, block size."""
    unit: str
    """Of its times: s, ms, us, ns or date; "" when it has none."""
    containers: tuple[Container, ...]

    def sniff(self, head: Head) -> int:
        """NO to SURE. The surest reader gets the file."""
        ...

    def parse(self, record: Any, context: Context) -> Row | Iterable[Row]:
        """One record as one row, or as several (a session with its turns). Raises Drop when it cannot be used.

        A CSV record is a mapping of column name to text. Rows must not be rebased, sorted or renumbered here.
        """
        ...
