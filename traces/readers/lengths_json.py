"""Lengths as JSON lines with a time whose name tells its unit: `arrival_ms`, `arrival_s`, `arrival_us`, `arrival_ns`.

What is left when a public trace was converted by hand: `request_id`, `input_length`, `output_length`, `session_id`.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import LIKELY, NO, Container, Context, Head, Reader
from traces.readers.fields import client, fields, name
from traces.rows import Drop, Row

UNITS = {"arrival_s": "s", "arrival_ms": "ms", "arrival_us": "us", "arrival_ns": "ns"}


class LengthsJson(Reader):
    name = "lengths-json"
    title = "lengths with arrival_s, _ms, _us or _ns as the name says"
    unit = "ms"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        first = head.first
        return LIKELY if first.keys() & UNITS and first.keys() >= {"input_length", "output_length"} else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        stamp = next((field for field in UNITS if record.get(field) is not None), None)
        if stamp is None:
            raise Drop("no time", f"none of {', '.join(UNITS)}")
        context.note(f"times are {UNITS[stamp]}, by the name {stamp}")
        row = Row(
            context.time(record[stamp], UNITS[stamp]),
            context.length("input_length", record.get("input_length")),
            context.length("output_length", record.get("output_length")),
        )
        for field, source in (("id", "request_id"), ("session", "session_id")):
            if (value := name(record.get(source))) is not None:
                row.more[field] = value
        row.more.update(client(record, context, "client", "client_id"))
        return row
