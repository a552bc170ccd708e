"""What container a file is, seen by its beginning and never by its name, and that beginning for the readers to judge.

A JSON array in a `.jsonl` file, JSON lines in a `.json` file, a pretty-printed document, a file whose first row is
broken: all are what their content is.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from engine.errors import WorkbenchError
from traces.readers.base import Container, Head
from traces.readers.elements import elements
from traces.readers.files import read_head, read_pieces
from traces.readers.jsontext import decode
from traces.readers.times import NUMBER, zone_of
from traces.rows import Drop, ReadOptions

HEAD = 256 << 10
"""Bytes that are looked at; more when the first line is longer."""
RECORDS = 20
_DELIMITERS = (",", "\t", ";")


def read_heads(path: Path, options: ReadOptions) -> list[Head]:
    """The file's beginning as each container it can be: one, or two for a single JSON object on a line.

    Raises WorkbenchError when it is empty or no text.
    """
    raw, whole = read_head(path, HEAD)
    before = _comments(raw)
    lines = [line.strip() for line in raw.split(b"\n")[before:]]
    if not whole and len(lines) > 1:
        lines.pop()  # its end may be missing
    lines = [line for line in lines if line]
    if not lines:
        raise WorkbenchError(f"{path} is empty: it holds no requests")
    if whole and b"".join(raw.split()) == b"[]":
        raise WorkbenchError(f"{path} is an empty JSON array: it holds no requests")
    first = lines[0][:1]
    if len(lines) == 1 and b"\r" in lines[0] and first not in (b"[", b"{"):
        raise WorkbenchError(f"{path} ends its lines with CR alone; make them LF (tr '\\r' '\\n')")
    if first == b"[" and not whole and len(lines) == 1:
        return [_document(path, raw, whole, array=True)]
    values = [_value(line) for line in lines[:RECORDS]]
    objects = [value for value in values if isinstance(value, dict)]
    if first == b"[":
        if isinstance(values[0], list) and len(lines) > 1:  # rows that are lists
            return [Head(path, Container.JSONL, records=_known(values), whole=whole)]
        return [_document(path, raw, whole, array=True)]
    if first == b"{" and (not objects or (values[0] is _NONE and 2 * len(objects) < len(values))):
        # A document may have some of its inner objects on lines of their own, the last of them without a comma.
        return [_document(path, raw, whole, array=False)]
    if objects and (first == b"{" or 2 * len(objects) >= len(values)):
        heads = [Head(path, Container.JSONL, records=_known(values), whole=whole)]
        if len(lines) == 1 and whole:
            heads.append(Head(path, Container.JSON, records=_known(values), whole=whole))
        return heads
    if all(value is not _NONE for value in values):  # numbers or texts, one a line
        return [
            Head(path, Container.JSONL, records=tuple(values), whole=whole),
            _csv(path, lines, whole, options, before),
        ]
    return [_csv(path, lines, whole, options, before)]


def cells_of(line: str, delimiter: str) -> list[str]:
    """Raises Drop for quotes that do not end."""
    if '"' not in line:
        return [cell.strip() for cell in line.split(delimiter)]
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=delimiter, strict=True))]
    except (csv.Error, StopIteration):
        raise Drop("broken quotes", "broken quotes") from None


def is_data(cell: str) -> bool:
    """A number or a date: what no column is called."""
    return NUMBER.fullmatch(cell) is not None or zone_of(cell) is not None


_NONE = object()


def _known(values: list[Any]) -> tuple[Any, ...]:
    return tuple(value for value in values if value is not _NONE)


def _value(raw: bytes) -> Any:
    try:
        return decode(raw)
    except Drop:
        return _NONE


def _document(path: Path, raw: bytes, whole: bool, *, array: bool) -> Head:
    pieces: Iterator[bytes] = iter((raw,)) if whole or array else read_pieces(path)
    found = islice(elements(pieces, path, array=array), RECORDS if array or whole else 1)
    values = [_value(element) for _, element, is_whole in found if is_whole]
    return Head(path, Container.JSON, records=_known(values), is_array=array, whole=whole)


def _comments(raw: bytes) -> int:
    """Lines to pass over before a table: comments and blank ones. None where they are the header of a format.

    A last comment of as many cells as the data right after it is the table's header, as NumPy writes it.
    """
    last = -1
    for place, line in enumerate(lines := raw.split(b"\n")):
        text = line.strip()
        if b"trace_version" in text:
            return 0
        if text.startswith(b"#"):
            last = place
        elif text:
            if last < 0 or text[:1] in (b"{", b"["):
                return 0
            delimiter = _delimiter(text)
            cells, names = (row.decode("utf-8", "replace").split(delimiter) for row in (text, lines[last]))
            is_header = len(names) == len(cells) > 1 and any(is_data(cell.strip()) for cell in cells)
            return last if is_header and last == place - 1 else place
    return 0


def _csv(path: Path, lines: list[bytes], whole: bool, options: ReadOptions, before: int) -> Head:
    rows = []
    delimiter = _delimiter(lines[0])
    for line in lines[: RECORDS + 1]:
        try:
            rows.append(cells_of(line.decode("utf-8", "replace"), delimiter))
        except Drop:
            rows.append([])
    if rows[0]:
        rows[0][0] = rows[0][0].lstrip("# ")
    has_header = bool(rows[0]) and not any(map(is_data, rows[0]))
    columns = options.columns or (tuple(rows[0]) if has_header else ())
    return Head(path, Container.CSV, columns, tuple(rows[has_header:]), False, delimiter, has_header, whole, before)


def _delimiter(line: bytes) -> str:
    text = line.decode("utf-8", "replace")
    return max(_DELIMITERS, key=text.count)
