"""Mooncake (FAST'25): JSON lines of `timestamp` (ms), `input_length`, `output_length`, `hash_ids` (512 tokens each).

An id is a chain id: the same id stands for the same tokens and the same ones before them. Real arrivals come in
batches 3 s apart, so gaps between them say little.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import block_ids, client, fields, fits, prefix
from traces.readers.jsonlines import JsonLines
from traces.rows import Row

BLOCK = 512
FIELDS = {"timestamp", "input_length", "output_length", "hash_ids"}
OTHERS = {
    "session_id", "delay", "chat_id", "parent_chat_id", "priority", "text_input", "messages", "payload", "turn",
}  # fmt: skip
"""Fields of formats that look like this one."""


class Mooncake(Reader):
    name = "mooncake"
    title = "Mooncake FAST'25: lengths and block ids; ms, blocks of 512"
    unit = "ms"
    containers = (Container.JSONL, Container.JSON)
    lines = JsonLines("timestamp", "input_length", "output_length", "hash_ids", BLOCK)

    def sniff(self, head: Head) -> int:
        first = head.first
        if first.keys() == FIELDS - {"hash_ids"}:
            return SURE - 20
        if not first.keys() >= FIELDS or first.keys() & OTHERS or not isinstance(first["hash_ids"], list):
            return NO
        return SURE if fits(head.records, BLOCK) else SURE - 10

    def parse(self, record: Any, context: Context) -> Row:
        get = fields(record).get
        row = Row(
            context.time(get("timestamp"), self.unit),
            context.length("input_length", get("input_length")),
            context.length("output_length", get("output_length")),
        )
        if context.options.client_from:
            row.more.update(client(record, context))
        if (ids := get("hash_ids")) is not None:
            prefix(row, block_ids(ids), BLOCK, context)
        return row
