"""What readers make of a file: rows in columns, and an account of what became of every row.

A reader yields `Chunk`s: columns of the rows that were kept, in file order, with times as in the file (integer
nanoseconds, not rebased). `Report` counts the rest: `read = kept + dropped`, always.

Invariant: a chunk holds at most CHUNK_ROWS rows, so memory is flat whatever the file's size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

CHUNK_ROWS = 65_536
NO_TIME = -(1 << 63)
"""In `t_ns` of a row without a time."""
UNKNOWN = 0
"""In `prompt_len` and `output_len`: the row has text (or nothing) instead of a length."""
EXAMPLES = 5
"""Rows that are named for each reason."""

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Drop(Exception):
    """A row that cannot be used. `reason`: a short kind of fault, the same for all such rows; `detail`: this one."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


@dataclass(slots=True)
class Row:
    """One kept row as a reader's `parse` returns it."""

    t_ns: int | None = None
    """Absolute or relative, as the file has it; rebased later."""
    prompt_len: int | None = None
    output_len: int | None = None
    failed: bool = False
    """The source says it failed there: kept, counted, not sent."""
    clamped: tuple[str, ...] = ()
    """Reasons for which a value was changed."""
    more: dict[str, Any] = field(default_factory=dict)
    """Any other fields of `RequestSpec`, by their names. `id` and `after` are the source's own."""


@dataclass(slots=True)
class Chunk:
    line: Ints
    """Line (or element) of the file, from 1."""
    t_ns: Ints
    prompt_len: Ints
    output_len: Ints
    failed: Flags
    more: Sequence[dict[str, Any]] | None = None
    """`Row.more` of each row; None when no row has any."""

    def __len__(self) -> int:
        return len(self.line)

    @classmethod
    def of(cls, lines: Sequence[int], rows: Sequence[Row]) -> Chunk:
        return cls(
            np.array(lines, np.int64),
            np.array([NO_TIME if row.t_ns is None else row.t_ns for row in rows], np.int64),
            np.array([row.prompt_len or UNKNOWN for row in rows], np.int64),
            np.array([row.output_len or UNKNOWN for row in rows], np.int64),
            np.array([row.failed for row in rows], np.bool_),
            [row.more for row in rows] if any(row.more for row in rows) else None,
        )


@dataclass(slots=True)
class Report:
    """What became of every row. Complete once the reader's chunks are used up."""

    read: int = 0
    kept: int = 0
    failed: int = 0
    """Of the kept ones: known to have failed at the source, and not sent."""
    clamped: Counter[str] = field(default_factory=Counter)
    """Reason to number of kept rows of which a value was changed."""
    dropped: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    """Reason to `FILE:LINE: detail` of its first EXAMPLES rows."""
    notes: list[str] = field(default_factory=list)
    """What else a person should know: inversions, extra columns, a cut last line, cycles that were broken."""
    inversions: int = 0
    """Rows earlier than the row before them."""

    def drop(self, where: str, fault: Drop) -> None:
        self.read += 1
        self.dropped[fault.reason] += 1
        self.example(fault.reason, where, fault.detail)

    def example(self, reason: str, where: str, detail: str = "") -> None:
        seen = self.examples.setdefault(reason, [])
        if len(seen) < EXAMPLES:
            seen.append(f"{where}: {detail or reason}")

    def check(self) -> None:
        assert self.read == self.kept + sum(self.dropped.values()), "a row was lost"


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a person may ask of a reader."""

    format: str | None = None
    """Name of a reader; None: by looking at the content."""
    time_unit: str | None = None
    """s, ms, us or ns, for numbers; None: the format's own."""
    columns: tuple[str, ...] = ()
    """Names for the columns of a CSV file without a header."""
    failed: str = "keep"
    """Rows that failed at their source (zero lengths): keep (known, not sent), drop, or min1 (sent with 1 token)."""
    short_ids: str = "reject"
    """Rows with fewer prefix ids than their prompt needs: reject, or tail (the rest is private)."""
    id_block: int | None = None
    """Tokens that each block id stands for; None: as the format says."""
    client_from: str | None = None
    """Column or field whose value is the client; None: as the format says, else all one client."""
    strict: bool = False
    """Raise at the end if any row was dropped."""
