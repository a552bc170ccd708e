"""LMCache agent logs: JSON lines of `timestamp` (microseconds since 1970), `input`, `output`, `session_id`; full text.

Rows are out of order inside a file, and many have an empty `output` or `input`: such a call is known to have failed
there. Output lengths are estimates, a quarter of the characters.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import client, estimate, fields, name
from traces.readers.sharegpt import ABOUT_LENGTH
from traces.rows import Drop, Row


class LMCache(Reader):
    name = "lmcache"
    title = "LMCache agent log: texts by session, output length estimated; us since 1970"
    unit = "us"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        first = head.first
        return SURE if first.keys() >= {"timestamp", "input", "output", "session_id"} else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        question, answer = record.get("input"), record.get("output")
        if not isinstance(question, str) or not isinstance(answer, str | None):
            raise Drop("input and output are not text")
        context.note(ABOUT_LENGTH)
        row = Row(context.time(record.get("timestamp"), self.unit), failed=not question or not answer)
        row.output_len = estimate(answer or "")
        if question:
            row.more["prompt"] = question
        else:
            row.prompt_len = 0
        if (session := name(record.get("session_id"))) is not None:
            row.more["session"] = session
        row.more.update(client(record, context))
        return row
