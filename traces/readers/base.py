"""What a reader is: one small file a format, chosen by looking at a file's content.

A reader says how sure it is (`sniff`) and turns the file's records into rows (`parse`). Containers (CSV, JSON lines, a
JSON array or document, gzip, zstd), counting, units, rebasing and order are done once for all of them, elsewhere.
Columns and fields are taken by name, never by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from traces.rows import Drop, ReadOptions, Row

if TYPE_CHECKING:
    from traces.readers.jsonlines import FastLines
    from traces.readers.table import Table

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
    CSV: the cells of the first few lines after the header, as lists of strings."""
    is_array: bool = False
    """JSON: the file is an array."""
    delimiter: str = ","
    """CSV: what stands between cells."""
    has_header: bool = True
    """CSV: `columns` come from the first line, which is not data; else from the options, or there are none."""
    whole: bool = False
    """The file is not longer than this."""
    before: int = 0
    """CSV: lines of comments (and blank ones) before the first line that counts."""

    @property
    def first(self) -> Mapping[str, Any]:
        """The first JSON object; empty when there is none."""
        return next((record for record in self.records if isinstance(record, dict)), {})

    def column(self, name: str) -> str | None:
        """CSV: the column of this name as the file spells it: exactly so, else in other case, or _ for a space."""
        if name in self.columns:
            return name
        plain = _plain(name)
        return next((column for column in self.columns if _plain(column) == plain), None)

    def spelled(self, names: Iterable[str]) -> tuple[str, ...]:
        """CSV: those of the columns that are there, as the file spells them."""
        return tuple(filter(None, map(self.column, names)))


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_")


class Context(Protocol):
    """What `parse` may look at besides the record."""

    @property
    def options(self) -> ReadOptions: ...

    @property
    def path(self) -> Path: ...

    rows_in: Path
    """The file whose lines are counted: `path`, until `records` reads another one beside it."""

    @property
    def line(self) -> int:
        """Of the record that is parsed: line of the file, or number of the element, from 1."""
        ...

    @property
    def state(self) -> dict[str, Any]:
        """What a reader wants to remember from one record to the next: readers hold nothing themselves."""
        ...

    def time(self, value: Any, unit: str) -> int:
        """A time as integer nanoseconds: a number of `unit` (s, ms, us, ns; `--time-unit` wins), text that holds such
        a number, or a date of any common form (0-9 fraction digits, T or space, Z or an offset). Raises Drop."""
        ...

    def length(self, name: str, value: Any) -> int:
        """A length in tokens, 0 or more: 5, 5.0 or "5". Raises Drop for 5.5, negative, not finite, missing, huge."""
        ...

    def seconds(self, value: Any, unit: str) -> float:
        """A duration of `unit` in seconds; the same rules as `time`."""
        ...

    def note(self, text: str) -> None:
        """Tell a person once, however often it is called with the same text."""
        ...


class Reader:
    """One format. Subclass it, set the attributes, write `sniff` and `parse`, and list it in `registry.READERS`."""

    name: str = ""
    """Short and for ever: `azure`, `mooncake`; `--format` takes it."""
    title: str = ""
    """One line for people: what it is, unit, block size."""
    unit: str = ""
    """Of its times: s, ms, us, ns or date; "" when it has none."""
    containers: tuple[Container, ...] = ()
    closed_loop: bool = False
    """A turn of a session begins when the turn before has ended, and not at its own time: rows of one `session` follow
    each other in order of `turn` (else of time). Rows that give `after` do so in any case."""
    from_start: bool = False
    """Times count from the start of the run: they are not rebased."""

    unique_ids: bool = False
    """A second row with the id of another is a mistake; else it gets another id. Seen when all rows are together."""
    lines: FastLines | None = None
    """JSON lines of a few fields and nothing else: clean blocks of them are then read without Python for each row. All
    others go through `parse`."""

    def sniff(self, head: Head) -> int:
        """NO to SURE. The surest reader gets the file."""
        raise NotImplementedError

    def takes_folder(self, path: Path) -> bool:
        """Whether this folder holds files of the format that belong together; `records` reads them."""
        return False

    def table(self, head: Head, context: Context) -> Table | None:
        """CSV whose rows are one time, two lengths and texts: which columns they are. Clean rows are then read without
        Python for each, and `parse` is not needed. None: every row goes through `parse`."""
        return None

    def records(self, head: Head, context: Context) -> Iterator[tuple[int, Any]] | None:
        """The file's records as (line, record), where the containers do not fit: a header before the CSV, parameters
        instead of requests. A record may be a Drop, or a finished Row. None: as the container has them."""
        return None

    def parse(self, record: Any, context: Context) -> Row | Iterable[Row | Drop]:
        """One record as one row, or as several (a session with its turns). Raises Drop when it cannot be used; a Drop
        among several rows stands for one that cannot.

        A CSV record is a mapping of column name to text, stripped. Rows must not be rebased, sorted or renumbered.
        """
        raise NotImplementedError
