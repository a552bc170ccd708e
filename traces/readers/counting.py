"""The account of a file's rows while they are read: what becomes of each record, by the rules and by the options.

Invariant: whatever is handed in is counted once, as kept or as dropped with a reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from traces.readers.parsing import Parsing
from traces.rows import Drop, ReadOptions, Report, Row

FAILED = "failed at its source"
SENT_WITH_ONE = "failed at its source, sent with 1 token"
MOST_PROBLEMS = 100_000
"""Bad rows whose text is kept for an error that lists them."""

Parse = Callable[[Any, Parsing], Row | Iterable[Row | Drop]]


class Counting:
    def __init__(self, options: ReadOptions, context: Parsing, report: Report) -> None:
        self.options = options
        self.context = context
        self.report = report
        self.problems: list[str] = []
        """`FILE:LINE: what is wrong` of each dropped row, the first MOST_PROBLEMS."""
        self.parse: Parse
        """Of the reader, or of its table."""
        self.client_field: str | None = None
        """Field of records that names the client, where `parse` does not see to it."""
        self.client_found = False

    def where(self, line: int) -> str:
        """`FILE:LINE` of a row."""
        return f"{self.context.rows_in}:{line}"

    def rows(self, line: int, record: Any) -> Iterator[Row]:
        """The kept rows of a record; the others are counted."""
        found = 0
        self.context.line = line
        try:
            if isinstance(record, Drop):
                raise record
            made = record if isinstance(record, Row) else self.parse(record, self.context)
            for row in (made,) if isinstance(made, Row) else made:
                found += 1
                if isinstance(row, Drop):
                    self.drop(line, row)
                elif kept := self.settle(line, row, record):
                    yield kept
            if not found:
                raise Drop("a record without requests")
        except Drop as fault:
            self.drop(line, fault)
        except KeyError as error:
            self.drop(line, Drop(f"no {error.args[0]}"))

    def settle(self, line: int, row: Row, record: Any = None) -> Row | None:
        """What becomes of a row that could be read; None when it is dropped."""
        if self.client_field is not None:
            self._name_client(row, record, self.client_field)
        if row.failed or row.prompt_len == 0 or row.output_len == 0:
            row.failed = True
            if self.options.failed == "drop":
                self.report.drop(self.where(line), _failure(row))
                return None
            if self.options.failed == "min1":
                row.failed = False
                row.prompt_len = None if row.prompt_len is None else max(row.prompt_len, 1)
                row.output_len = None if row.output_len is None else max(row.output_len, 1)
                row.clamped = (*row.clamped, SENT_WITH_ONE)
        self.keep(1, row.failed)
        for reason in row.clamped:
            self.report.clamped[reason] += 1
            self.report.example(reason, self.where(line))
        return row

    def keep(self, rows: int, failed: int) -> None:
        """Rows that were settled at once."""
        self.report.read += rows
        self.report.kept += rows
        self.report.failed += failed

    def take_back(self, line: int, failed: bool, fault: Drop) -> None:
        """A kept row turns out to be of no use, seen beside the others: it counts as dropped."""
        self.keep(-1, -failed)
        self.drop(line, fault)

    def drop(self, line: int, fault: Drop) -> None:
        where = self.where(line)
        self.report.drop(where, fault)
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(f"{where}: {fault.detail or fault.reason}")

    def _name_client(self, row: Row, record: Any, field: str) -> None:
        name = find_name(field, record) if isinstance(record, Mapping) else None
        value = row.more.get(field) if name is None else record[name]
        if isinstance(value, str | int) and str(value).strip():
            row.more = {**row.more, "client": str(value)}
            self.client_found = True


def _failure(row: Row) -> Drop:
    if row.prompt_len == 0 or row.output_len == 0:
        return Drop(FAILED, f"lengths {row.prompt_len} and {row.output_len}")
    return Drop(FAILED)


def find_name(wanted: str, names: Iterable[str]) -> str | None:
    """A column or field by its name, in any spelling: `log_type` is "Log Type", `session` is "session_id", too."""
    by_plain = {_plain(name): name for name in reversed(list(names))}
    plain = _plain(wanted)
    return by_plain.get(plain) or by_plain.get(plain + "_id")


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
