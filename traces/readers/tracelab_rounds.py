"""TraceLab rounds: JSON lines, one model call a line, dates in `timing_events`.

A round begins with the last message or tool result that was there before its first output, and ends with its last
event. It waits for the round before it in its session. Shared prefixes are counted in the file but not named, so that
none are made up.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.fields import client, fields, name
from traces.rows import Drop, Row

INPUTS = {"user_message", "tool_result"}


class TraceLabRounds(Reader):
    name = "tracelab-rounds"
    title = "TraceLab rounds of coding agents: lengths by session; dates"
    unit = "date"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        return SURE if head.first.keys() >= {"session_id", "round_index", "input_tokens_total"} else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        start_ns, end_ns = _times(record.get("timing_events"), context)
        row = Row(
            start_ns,
            context.length("input_tokens_total", record.get("input_tokens_total")),
            context.length("output_tokens", record.get("output_tokens")),
        )
        row.more.update(client(record, context, "user"))
        context.note("prefixes are counted in the file, not named: prompts share nothing here")
        session = name(record.get("session_id"))
        if session is None:
            return row
        turn = context.length("round_index", record.get("round_index"))
        id = f"{session}/{turn}"
        row.more |= {"id": id, "session": session, "turn": turn}
        rounds: dict[str, tuple[str, int]] = context.state.setdefault("last_rounds", {})
        last = rounds.get(session)
        if last is not None and last[1] <= start_ns:
            row.more |= {"after": last[0], "delay": (start_ns - last[1]) / 1e9}
        if last is None or end_ns >= last[1]:
            rounds[session] = (id, end_ns)
        return row


def _times(events: Any, context: Context) -> tuple[int, int]:
    """Nanoseconds of a round's beginning and end. Raises Drop."""
    asked: list[int] = []
    said: list[int] = []
    for event in events if isinstance(events, list) else []:
        if isinstance(event, dict) and event.get("timestamp") is not None:
            (asked if str(event.get("event_type")) in INPUTS else said).append(context.time(event["timestamp"], "s"))
    if not asked and not said:
        raise Drop("no time", "no timestamp among timing_events")
    begin = max((stamp for stamp in asked if not said or stamp <= min(said)), default=None)
    start = begin if begin is not None else min(said or asked)
    return start, max([start, *said])
