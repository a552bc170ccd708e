"""vLLM's custom dataset: JSON lines of `prompt` (text) and `output_tokens`; no times.

A prompt of digits alone is text like any other: `"007"` has three characters.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import MAYBE, NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import checked, client, fields
from traces.rows import Row


class VllmCustom(Reader):
    name = "vllm-custom"
    title = "vLLM custom: prompt texts and output lengths; no times"
    unit = ""
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        first = head.first
        if not isinstance(first.get("prompt"), str):
            return NO
        if first.get("output_tokens") is not None:
            return SURE
        return MAYBE if first.keys() == {"prompt"} else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        row = Row(more={"prompt": checked("prompt", record.get("prompt")), **client(record, context)})
        if record.get("output_tokens") is not None:
            row.output_len = context.length("output_tokens", record["output_tokens"])
        return row
