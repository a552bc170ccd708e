"""Requests as lines of the native format, which `traces.readers.native` reads.

Invariant: one JSON object a line, fields in the order of `RequestSpec`, those with their default value left out
(`arrival` is always there); the same requests give the same bytes. Floats are written so that they read back exactly.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import MISSING, fields
from typing import Any, TextIO

from traces.workload import RequestSpec

_OURS = ("where",)
"""Fields that are not in a file."""
_FIELDS = tuple((field.name, field.default) for field in fields(RequestSpec) if field.name not in _OURS)

_SAID_BY_OUTPUT_LEN = ("max_tokens", "ignore_eos")


def write_native(specs: Iterable[RequestSpec], file: TextIO) -> int:
    """Writes a line for each request. Returns how many."""
    number = 0
    for spec in specs:
        file.write(json.dumps(native_row(spec), ensure_ascii=False, separators=(", ", ": ")))
        file.write("\n")
        number += 1
    return number


def native_row(spec: RequestSpec) -> dict[str, Any]:
    """The fields of one line."""
    row: dict[str, Any] = {}
    for name, default in _FIELDS:
        value = getattr(spec, name)
        if name == "arrival" or default is MISSING or value != default:
            row[name] = value
    if spec.messages is not None:
        row["messages"] = [{"role": role, "content": content} for role, content in spec.messages]
    if spec.after is None:
        row.pop("delay", None)  # left of a request that followed one which is not there
    if spec.output_len is not None:
        for name in _SAID_BY_OUTPUT_LEN:
            row.pop(name, None)
    return row
