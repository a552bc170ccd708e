"""One JSON value from bytes, as strict as a trace needs it and as forgiving as its faults can be named.

Invariant: types are those of the text (`"007"` stays text, integers keep all their digits). A value is either what a
strict reader sees in it, or a Drop. NaN and Infinity become floats, so that the field that holds one is named.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from traces.rows import Drop

NOT_JSON = "not JSON"
TWICE = "a field given twice"
NOT_UTF8 = "not UTF-8 text"
SURROGATE = "half of a surrogate pair"

_decode = msgspec.json.Decoder().decode


def decode(raw: bytes) -> Any:
    """Raises Drop. About 300 MB/s where nothing is odd: msgspec keeps the last of two equal names silently, so
    where names and colons could differ in number the text is read once more by a reader that sees each name."""
    try:
        value = _decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return _slowly(raw)
    colons = raw.count(b":")
    if not (type(value) is dict and colons == len(value)) and colons != _names(value):
        return _slowly(raw)
    return value


def _names(value: Any) -> int:
    """How many names the value holds, or fewer: of a list that begins with no object or list, none."""
    if type(value) is dict:
        return len(value) + sum(_names(item) for item in value.values() if type(item) is dict or type(item) is list)
    if type(value) is list and value and type(value[0]) in (dict, list):
        return sum(map(_names, value))
    return 0


def _slowly(raw: bytes) -> Any:
    try:
        value = json.loads(raw.decode(), object_pairs_hook=_no_repeats)
    except UnicodeDecodeError as error:
        raise Drop(NOT_UTF8, f"not UTF-8 text at byte {error.start}") from None
    except json.JSONDecodeError as error:
        raise Drop(NOT_JSON, f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # more digits or levels than Python reads
        raise Drop(NOT_JSON, f"not readable JSON: {str(error).split(';')[0]}") from None
    if b"\\u" in raw:
        _no_halves(value)
    return value


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Drop(TWICE, f"field {json.dumps(twice)[:60]}: given twice")
    return row


def _no_halves(value: Any, name: str = "") -> None:
    """Text that no encoder takes must not reach a tokenizer."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            where = f"field {name!r}: " if name else ""
            raise Drop(SURROGATE, f"{where}holds half of a surrogate pair at character {error.start}") from None
    elif isinstance(value, dict):
        for key, item in value.items():
            _no_halves(key, name)
            _no_halves(item, name or key)
    elif isinstance(value, list):
        for item in value:
            _no_halves(item, name)
