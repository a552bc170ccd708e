"""OpenAI batch files and chat bodies: JSON lines; no times, so that all requests come at once.

`max_tokens` and `max_completion_tokens` are limits, not lengths that were measured. Of parts that are no text (images,
sound) a prompt keeps its text only; a message that has none is dropped.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import LIKELY, NO, SURE, Container, Context, Head, Reader
from traces.readers.chat import body
from traces.readers.fields import fields, name
from traces.rows import Drop, Row

GENERATE = ("/chat/completions", "/completions", "/responses")


class OpenAIBatch(Reader):
    name = "openai-batch"
    title = "OpenAI batch: API calls with a custom_id; no times"
    unit = ""
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        return SURE if "custom_id" in head.first and isinstance(head.first.get("body"), dict) else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        id = name(record.get("custom_id"))
        if id is None:
            raise Drop("no custom_id")
        url = record.get("url")
        if isinstance(url, str) and not url.rstrip("/").endswith(GENERATE):
            raise Drop("not a call that generates", url)
        seen: set[str] = context.state.setdefault("seen", set())
        if id in seen:
            raise Drop("custom_id given twice", repr(id))
        row = body(record.get("body"), context)
        seen.add(id)
        row.more["id"] = id
        return row


class OpenAIChat(Reader):
    name = "openai-chat"
    title = "OpenAI chat bodies: messages with limits and sampling values; no times"
    unit = ""
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        first = head.first
        if "messages" not in first and first.get("model") and isinstance(first.get("prompt"), str | list):
            return LIKELY if not first.keys() & {"custom_id", "timestamp", "delay", "session_id"} else NO
        if not isinstance(first.get("messages"), list) or first.keys() & {
            "custom_id",
            "timestamp",
            "delay",
            "session_id",
        }:
            return NO
        if not all(isinstance(message, dict) and "role" in message for message in first["messages"]):
            return NO
        parts = any(not isinstance(message.get("content"), str) for message in first["messages"])
        # Plain texts and max_tokens alone are our own format, too, with the same meaning.
        return SURE if parts or first.keys() & {"model", "max_completion_tokens", "stream"} else LIKELY - 10

    def parse(self, record: Any, context: Context) -> Row:
        return body(record, context)
