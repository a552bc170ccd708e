"""Weka / cc-traces: a JSON session, or lines of them; seconds from the session's start, blocks of `block_size` tokens.

`null` is "not recorded", never 0: a call without `api_time` has no known end, so that no other can wait for it. A
subagent's calls are a session of their own, begun by the call that ended last before. Their times are from the
session's start or from the subagent's own: whichever does not put them before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import block_ids, client, fields, name, prefix
from traces.readers.waits import Span, links
from traces.rows import Drop, Row

BLOCK = 64
MARKS = {"block_size", "hash_id_scope", "tool_tokens", "system_tokens", "models"}


class Call(NamedTuple):
    record: dict[str, Any]
    start_ns: int
    session: str


class Weka(Reader):
    name = "weka"
    title = "Weka / cc-traces: agent sessions with subagents; s from the session's start, blocks as block_size says"
    unit = "s"
    containers = (Container.JSON, Container.JSONL)

    def sniff(self, head: Head) -> int:
        first = head.first
        return SURE if isinstance(first.get("requests"), list) and first.keys() & MARKS else NO

    def parse(self, record: Any, context: Context) -> Iterator[Row | Drop]:
        record = fields(record)
        if not isinstance(record.get("requests"), list) or not record["requests"]:
            raise Drop("a session without requests", name(record.get("id")) or "")
        block = BLOCK if record.get("block_size") is None else context.length("block_size", record["block_size"])
        if not block:
            raise Drop("bad block_size", "0")
        sessions: dict[str, None] = context.state.setdefault("sessions", {})
        session = name(record.get("id")) or f"session-{len(sessions) + 1}"
        if session in sessions:
            raise Drop("a session given twice", session)
        sessions[session] = None
        context.note("times count from the start of each session: all sessions begin together")
        # Ids of one session mean nothing in another: each gets a range of its own, the first keeps its numbers.
        offset = 0 if record.get("hash_id_scope") == "global" else (len(sessions) - 1) << 64
        return _rows(record, session, block, offset, context)


def _rows(record: dict[str, Any], session: str, block: int, offset: int, context: Context) -> Iterator[Row | Drop]:
    rows: list[Row] = []
    times: list[Span] = []
    turns: dict[str, int] = {}
    for call in _calls(record["requests"], session, 0, context):
        if isinstance(call, Drop):
            yield call
            continue
        try:
            row, end_ns = _row(call, block, offset, context)
        except Drop as fault:
            yield fault
            continue
        turn = turns[call.session] = turns.get(call.session, -1) + 1
        row.more |= {"id": f"{call.session}/{turn}", "session": call.session, "turn": turn}
        row.more.update(client(call.record, context) or client(record, context))
        rows.append(row)
        times.append(Span(call.start_ns, end_ns))
    for row, link in zip(rows, links(times), strict=True):
        if link is not None:
            row.more |= {"after": rows[link.call].more["id"], "delay": link.delay_ns / 1e9}
        yield row


def _calls(requests: list[Any], session: str, base_ns: int, context: Context) -> Iterator[Call | Drop]:
    """All calls, nested ones too, with their times from the session's start."""
    agents = 0
    for item in requests:
        try:
            item = fields(item)
            start_ns = base_ns + context.time(item.get("t"), "s")
        except Drop as fault:
            yield fault
            continue
        if item.get("type") != "subagent":
            yield Call(item, start_ns, session)
            continue
        agents += 1
        inner = item.get("requests")
        if not isinstance(inner, list) or not inner:
            yield Drop("a subagent without requests", name(item.get("agent_id")) or "")
            continue
        first = inner[0].get("t") if isinstance(inner[0], dict) else None
        absolute = isinstance(first, int | float) and base_ns + context.time(first, "s") >= start_ns
        agent = name(item.get("agent_id")) or str(agents)
        yield from _calls(inner, f"{session}/{agent}", base_ns if absolute else start_ns, context)


def _row(call: Call, block: int, offset: int, context: Context) -> tuple[Row, int | None]:
    row = Row(
        call.start_ns,
        context.length("in", call.record.get("in")),
        context.length("out", call.record.get("out")),
    )
    if call.record.get("hash_ids") and row.prompt_len:
        ids = block_ids(call.record["hash_ids"])
        prefix(row, tuple(id + offset for id in ids) if offset else ids, block, context, partial=False)
    took = call.record.get("api_time")
    return row, None if took is None else call.start_ns + context.time(took, "s")
