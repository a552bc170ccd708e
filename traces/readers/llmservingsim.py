"""LLMServingSim 2: JSON lines, nanoseconds; single requests, with or without token ids, and agent sessions, mixed.

In a session each of `sub_requests` begins `tool_duration_ns` of the one before after that one has ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import checked, client, fields, name
from traces.rows import Drop, Row

IDS_WIN = "prompt length is the number of token ids"


class LLMServingSim(Reader):
    name = "llmservingsim"
    title = "LLMServingSim: requests and agent sessions, with token ids or without; ns"
    unit = "ns"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        first = head.first
        if "arrival_time_ns" not in first:
            return NO
        return SURE if "input_toks" in first or isinstance(first.get("sub_requests"), list) else NO

    def parse(self, record: Any, context: Context) -> Row | Iterator[Row | Drop]:
        record = fields(record)
        t_ns = context.time(record.get("arrival_time_ns"), self.unit)
        if "sub_requests" not in record:
            row = _request(record, context)
            row.t_ns = t_ns
            return row
        if not isinstance(record["sub_requests"], list) or not record["sub_requests"]:
            raise Drop("a session without requests", f"sub_requests of {name(record.get('session_id'))!r} are empty")
        return _session(record, t_ns, context)


def _request(record: Any, context: Context) -> Row:
    record = fields(record)
    row = Row(
        None,
        context.length("input_toks", record.get("input_toks")),
        context.length("output_toks", record.get("output_toks")),
    )
    row.more.update(client(record, context))
    if record.get("input_tok_ids"):
        ids = checked("prompt_ids", record["input_tok_ids"])
        if len(ids) != row.prompt_len:
            row.clamped += (IDS_WIN,)
        row.prompt_len = None
        row.more["prompt_ids"] = ids
    return row


def _session(record: dict[str, Any], t_ns: int, context: Context) -> Iterator[Row | Drop]:
    session = name(record.get("session_id")) or f"at-{t_ns}"
    previous, pause = None, 0.0
    for turn, item in enumerate(record["sub_requests"]):
        try:
            row = _request(item, context)
            tool_ns = item.get("tool_duration_ns")
            tools = 0.0 if tool_ns is None else context.seconds(tool_ns, "ns")
        except Drop as fault:
            yield fault
            continue
        id = f"{session}/{turn}"
        row.more |= {"id": id, "session": session, "turn": turn, **client(record, context)}
        if previous is None:
            row.t_ns = t_ns
        else:
            row.more |= {"after": previous, "delay": pause}
        previous, pause = id, tools
        yield row
