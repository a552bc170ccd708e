"""VTC result file: one JSON document (of one line) with `responses`; seconds, the client is the adapter's name.

Its latencies are those of the run that was recorded, and are not used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import client, fields
from traces.rows import Drop, Row


class VtcJson(Reader):
    name = "vtc-json"
    title = "VTC results: lengths of many clients; s"
    unit = "s"
    containers = (Container.JSON, Container.JSONL)

    def sniff(self, head: Head) -> int:
        responses = head.first.get("responses")
        if not isinstance(responses, list) or not responses or not isinstance(responses[0], dict):
            return NO
        return SURE if responses[0].keys() >= {"prompt_len", "output_len", "req_time"} else NO

    def parse(self, record: Any, context: Context) -> Iterator[Row | Drop]:
        responses = fields(record).get("responses")
        if not isinstance(responses, list):
            raise Drop("no responses")
        return (_row(item, context) for item in responses)


def _row(item: Any, context: Context) -> Row | Drop:
    try:
        item = fields(item)
        return Row(
            context.time(item.get("req_time"), "s"),
            context.length("prompt_len", item.get("prompt_len")),
            context.length("output_len", item.get("output_len")),
            more=client(item, context, "adapter_dir"),
        )
    except Drop as fault:
        return fault
