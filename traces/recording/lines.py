"""One line of a recording: a JSON object that begins with its kind, written whole, ended by a newline.

Invariant: what was encoded decodes to the same values: strings of any code points, integers of any size, finite floats.
No code is run and no class is named by a file: objects, lists, strings, numbers and nothing else.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from traces.errors import RecordingError

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


class BadLine(RecordingError):
    """A line that is no line of a recording, or says what cannot be. The message is a reason without a place."""


def dump(line: dict[str, Any]) -> bytes:
    """With its newline."""
    try:
        return _encode(line) + b"\n"
    except (UnicodeEncodeError, OverflowError, ValueError):  # half a surrogate pair, an integer beyond 64 bits
        return json.dumps(line, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def load(line: bytes) -> dict[str, Any]:
    """BadLine when it is no object with a kind."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise BadLine("is no JSON") from None
    if not isinstance(found, dict) or not isinstance(found.get("k"), str):
        raise BadLine('is no object with a kind "k"')
    return found
