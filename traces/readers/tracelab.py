"""TraceLab's CSV of agent sessions: one row a round, with how much of the prompt was there before and how long tools
took afterwards. A round begins when the one before has ended and its tools have run.

The file has no block ids: a session's prompt is taken to grow, so that `prefix_len` tokens of a round are those the
round before began with, in whole blocks of BLOCK tokens. Arrival times are synthetic; only a session's first counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.rows import Row

BLOCK = 64
_SESSIONS = "sessions"
_NEXT = "next"


class _Before(NamedTuple):
    ids: tuple[int, ...]
    wait: float


class TraceLab(Reader):
    name = "tracelab"
    title = f"TraceLab agent rounds (CSV, milliseconds, prefixes in blocks of {BLOCK} tokens)"
    unit = "ms"
    containers = (Container.CSV,)
    closed_loop = True

    def sniff(self, head: Head) -> int:
        return SURE if {"id", "input_len", "output_len", "arrival_time", "round_idx"} <= set(head.columns) else NO

    def parse(self, record: Any, context: Context) -> Row:
        session = record["id"]
        t_ns = context.time(record["arrival_time"], "ms")
        prompt_len = context.length("input_len", record["input_len"])
        output_len = context.length("output_len", record["output_len"])
        shared = context.length("prefix_len", record.get("prefix_len") or 0)
        wait = context.seconds(record.get("tool_wait_after_ms") or 0, "ms")
        turn = context.length("round_idx", record["round_idx"])
        sessions: dict[str, _Before] = context.state.setdefault(_SESSIONS, {})
        before = sessions.get(session, _Before((), 0.0))
        ids = before.ids[: min(shared, prompt_len) // BLOCK]
        first = context.state.get(_NEXT, 0)
        fresh = -(-prompt_len // BLOCK) - len(ids)
        context.state[_NEXT] = first + fresh
        ids += tuple(range(first, first + fresh))
        sessions[session] = _Before(ids, wait)
        more: dict[str, Any] = {"session": session, "turn": turn, "delay": before.wait}
        if ids:
            more |= {"prefix_ids": ids, "prefix_lens": (BLOCK,)}
        return Row(t_ns, prompt_len, output_len, more=more)
