"""Dynamo's `dynamo.request.trace.v1`: JSON lines of events, bare or wrapped in `{"timestamp", "event"}`.

A line is written when a request has ended: lines are in order of completion, and the beginning is a field. Inside a
session a request waits for the one that ended last before it began. Block hashes have 64 bits and keep them.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import block_ids, client, fields, given, name, prefix
from traces.rows import Drop, Row

SCHEMA = "dynamo.request.trace."
VERSION = f"{SCHEMA}v1"
REMEMBERED = 64
"""Last ends of a session: more calls than that are not open at once in one agent."""


class Dynamo(Reader):
    name = "dynamo"
    title = "Dynamo request trace v1: sessions, lengths and block hashes; ms since 1970"
    unit = "ms"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        return SURE if any(_is_event(record) for record in head.records) else NO

    def parse(self, record: Any, context: Context) -> Row:
        event = _event(fields(record))
        schema = event.get("schema")
        if schema is not None and schema != VERSION:
            raise Drop("unknown version of the trace", f"{schema!r}, known: {VERSION}")
        if event.get("event_type") != "request_end":
            raise Drop("an event that is not a request", str(event.get("event_type")))
        request = event.get("request")
        if not isinstance(request, dict):
            raise Drop("no request in the event")
        replay = found if isinstance(found := request.get("replay"), dict) else {}
        row = Row(
            _received(event, request, context),
            context.length("input_tokens", given(replay, "input_length") or request.get("input_tokens")),
            context.length("output_tokens", request.get("output_tokens")),
        )
        if replay.get("input_sequence_hashes") and row.prompt_len:
            block = context.length("trace_block_size", replay.get("trace_block_size"))
            if not block:
                raise Drop("bad trace_block_size", "0")
            ids = block_ids(replay["input_sequence_hashes"], "input_sequence_hashes")
            prefix(row, ids, block, context, partial=False)
        row.more.update(client({**request, **event}, context))
        if (id := name(request.get("request_id"))) is not None:
            row.more["id"] = id
        agent = event.get("agent_context")
        session = name(agent.get("session_id")) if isinstance(agent, dict) else None
        if session is not None:
            row.more["session"] = session
            self._wait(row, session, _ended(event, context), context)
        return row

    def _wait(self, row: Row, session: str, end_ns: int | None, context: Context) -> None:
        sessions: dict[str, deque[tuple[int, str]]] = context.state.setdefault("ends", {})
        ends = sessions.setdefault(session, deque(maxlen=REMEMBERED))
        start = row.t_ns or 0
        before = max((entry for entry in ends if entry[0] <= start), default=None)
        if before is not None:
            row.more |= {"after": before[1], "delay": (start - before[0]) / 1e9}
        if end_ns is not None and "id" in row.more:
            ends.append((end_ns, row.more["id"]))


def _is_event(record: Any) -> bool:
    if not isinstance(record, dict):
        return False
    event = _event(record)
    return str(event.get("schema", "")).startswith(SCHEMA) and "event_type" in event


def _event(record: dict[str, Any]) -> dict[str, Any]:
    inner = record.get("event")
    return inner if isinstance(inner, dict) else record


def _ended(event: dict[str, Any], context: Context) -> int | None:
    stamp = event.get("event_time_unix_ms")
    return None if stamp is None else context.time(stamp, "ms")


def _received(event: dict[str, Any], request: dict[str, Any], context: Context) -> int:
    if request.get("request_received_ms") is not None:
        return context.time(request["request_received_ms"], "ms")
    end_ns, took = _ended(event, context), request.get("total_time_ms")
    if end_ns is None or took is None:
        raise Drop("no time", "neither request_received_ms nor an end and a duration")
    return end_ns - context.time(took, "ms")
