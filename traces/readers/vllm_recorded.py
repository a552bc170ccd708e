"""Requests recorded around a vLLM run: JSON lines of lengths, a wall clock for arrivals, a monotonic one for the rest.

`arrival_time` (seconds since 1970) is the only time taken: the other stamps are of another clock, and no difference
between the two means anything. A request that was aborted has 0 in them: it is known to have failed there.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import client, fields, name
from traces.rows import Row

ENDS = ("first_token_ts", "last_token_ts")


class VllmRecorded(Reader):
    name = "vllm-recorded"
    title = "requests of a recorded vLLM run: lengths and arrivals; s since 1970"
    unit = "s"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        return SURE if head.first.keys() >= {"input_toks", "output_toks", "arrival_time", "queued_ts"} else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        row = Row(
            context.time(record.get("arrival_time"), self.unit),
            context.length("input_toks", record.get("input_toks")),
            context.length("output_toks", record.get("output_toks")),
            failed=any(field in record and not record[field] for field in ENDS),
        )
        if (id := name(record.get("request_id"))) is not None:
            row.more["id"] = id
        row.more.update(client(record, context))
        return row
