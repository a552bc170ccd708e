"""The records of a file, whichever container they are in, each with its line or number. A record that cannot be read
is a Drop in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from traces.readers.base import Container, Head
from traces.readers.elements import elements
from traces.readers.files import read_lines, read_pieces
from traces.readers.heads import cells_of
from traces.readers.jsontext import NOT_JSON, NOT_UTF8, decode
from traces.rows import Drop

CELLS = "another number of cells"
CUT = "cut at the end of the file"

Records = Iterator[tuple[int, Any]]


def records_of(head: Head, note: Callable[[str], None]) -> Records:
    if head.container is Container.CSV:
        return csv_records(head)
    if head.container is Container.JSONL:
        return json_lines(head.path)
    return json_elements(head.path, head.is_array, note)


def json_lines(path: Path) -> Records:
    for line, raw in read_lines(path):
        if raw and not raw.isspace():
            yield line, decoded(raw)


def decoded(raw: bytes) -> Any:
    """One JSON value, or the Drop that says why there is none."""
    try:
        return decode(raw)
    except Drop as fault:
        return fault


def json_elements(path: Path, array: bool, note: Callable[[str], None]) -> Records:
    for number, raw, whole in elements(read_pieces(path), path, array=array):
        if whole:
            yield number, decoded(raw)
        else:
            if array:
                note("the array does not end: the file may have been cut")
            yield number, Drop(CUT if raw[:1] in b"{[" else NOT_JSON, f"element {number} has no end, {len(raw)} bytes")


def csv_records(head: Head, *, skip: int = 0) -> Records:
    """Mappings of column to text. `skip`: lines before the header."""
    header = head.has_header
    skip = max(skip, head.before)
    for line, raw in read_lines(head.path):
        if line <= skip or not raw or raw.isspace():
            continue
        if header:
            header = False
            continue
        try:
            yield line, csv_record(raw, head)
        except Drop as fault:
            yield line, fault


def csv_record(raw: bytes, head: Head) -> dict[str, str]:
    """Raises Drop."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Drop(NOT_UTF8, f"not UTF-8 text at byte {error.start}") from None
    cells = cells_of(text, head.delimiter)
    if len(cells) != len(head.columns):
        raise Drop(CELLS, f"{len(cells)} cells, there are {len(head.columns)} columns")
    return dict(zip(head.columns, cells, strict=True))
