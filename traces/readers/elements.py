"""The elements of a JSON array, or the documents of a text, as bytes, without reading the whole.

Brackets are counted and strings stepped over; what an element holds is not looked at here, so that a broken one is one
dropped row and the next is read again. A string never goes over the end of a line, which makes up for a missing quote.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from engine.errors import WorkbenchError

LARGEST = 256 << 20
"""Bytes of one element or document."""
_STRING = rb'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"'
_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+")
_TO_COMMA = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+")
_QUOTE, _COMMA, _OPEN = ord('"'), ord(","), b"[{"


def elements(pieces: Iterable[bytes], path: Path, *, array: bool) -> Iterator[tuple[int, bytes, bool]]:
    """(number from 1, bytes, whether it is whole) of each element of the array, or of each document one after the
    other. Only the last can be cut."""
    outer = 1 if array else 0
    text, start, at, depth, number = b"", 0, 0, 0, 0
    for piece in _and_last(pieces):
        if piece is not None:
            text, at, start = text[start:] + piece, at - start, 0
            if len(text) > LARGEST + len(piece):
                raise WorkbenchError(f"{path}: element {number + 1} is longer than {LARGEST >> 20} MiB")
        while True:
            pattern = _TO_COMMA if array and depth == 1 else _TO_BRACKET
            at = pattern.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
            if at == len(text):
                break
            byte = text[at]
            if byte == _QUOTE:  # a string without its end
                if (line_end := text.find(b"\n", at)) < 0:
                    break
                at = line_end + 1
                if depth > outer and b"\n" not in text[start:line_end].lstrip():  # an element a line: it ends with it
                    number, depth = number + 1, outer
                    yield number, text[start:line_end].strip(), True
                    start = at
                continue
            at += 1
            if byte in _OPEN:
                depth += 1
                if array and depth == 1:
                    start = at
                continue
            if byte != _COMMA:
                depth = max(depth - 1, 0)
            if depth == (outer if byte == _COMMA else 0):
                end = at - (1 if array else 0)
                if (element := text[start:end].strip()) or byte == _COMMA:
                    number += 1
                    yield number, element, True
                start = at
    if text[start:].strip():
        yield number + 1, text[start:].strip(), False


def _and_last(pieces: Iterable[bytes]) -> Iterator[bytes | None]:
    yield from pieces
    yield None
