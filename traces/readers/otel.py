"""OpenTelemetry GenAI spans as JSON: OTLP documents or lines, and inference-perf's one object a trace.

Only model calls are requests; what they waited for is worked out from beginnings and ends inside a session (the
conversation's id where there is one, else the trace). Spans of tools and agents only shape that order.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.chat import sampling
from traces.readers.fields import checked, client, estimate, fields, given, name
from traces.readers.otel_spans import (
    CLIENT,
    INPUT_TOKENS,
    LIMIT,
    OURS,
    OUTPUT_TOKENS,
    SAMPLING,
    SESSION,
    Span,
    answer,
    is_call,
    prompt,
    span_id,
    spans,
)
from traces.readers.sharegpt import ABOUT_LENGTH
from traces.readers.waits import Span as Times
from traces.readers.waits import links
from traces.rows import Drop, Row


class OTel(Reader):
    name = "otel"
    title = "OpenTelemetry GenAI spans: OTLP JSON, or one object a trace"
    unit = "date"
    containers = (Container.JSON, Container.JSONL)

    def sniff(self, head: Head) -> int:
        first = head.first
        if isinstance(given(first, "resourceSpans", "resource_spans"), list):
            return SURE
        if isinstance(first.get("spans"), list) and given(first, "trace_id", "traceId") is not None:
            return SURE
        return SURE if "attributes" in first and span_id(first) is not None else NO

    def parse(self, record: Any, context: Context) -> Iterator[Row | Drop]:
        every = list(spans(fields(record)))
        calls = [span for span in every if is_call(span.attributes)]
        if len(calls) < len(every):
            context.note("spans that are not model calls (tools, agents, embeddings) are not requests")
        return _rows(calls, context)


def _rows(calls: list[Span], context: Context) -> Iterator[Row | Drop]:
    made: list[Row | Drop] = []
    sessions: defaultdict[str, list[tuple[Row, Times]]] = defaultdict(list)
    named: set[str] = set()
    for call in calls:
        try:
            row, span = _row(call, context)
        except Drop as fault:
            made.append(fault)
            continue
        made.append(row)
        session = name(given(call.attributes, *SESSION))
        if session is not None:
            named.add(session)
        sessions[session or call.trace].append((row, span))
    for session, members in sessions.items():
        if len(members) == 1 and session not in named:  # a trace of one call is no conversation
            continue
        rows, times = zip(*sorted(members, key=lambda member: member[1].start_ns), strict=True)
        for turn, (row, link) in enumerate(zip(rows, links(times), strict=True)):
            row.more |= {"session": session, "turn": turn}
            if link is not None:
                row.more |= {"after": rows[link.call].more["id"], "delay": link.delay_ns / 1e9}
    yield from made


def _row(call: Span, context: Context) -> tuple[Row, Times]:
    about = call.attributes
    start_ns = context.time(call.start, "ns")
    row = Row(start_ns, failed=call.failed)
    end_ns = None if call.end is None else context.time(call.end, "ns")
    text, row.clamped = prompt(about)
    if isinstance(text, str):
        row.more["prompt"] = text
    elif text is not None:
        row.more["messages"] = text
    else:
        tokens = given(about, *INPUT_TOKENS)
        if tokens is None:
            raise Drop("no prompt", "neither messages nor input tokens in the span")
        row.prompt_len = context.length("input tokens", tokens)
    said = answer(about)
    if (tokens := given(about, *OUTPUT_TOKENS)) is not None:
        row.output_len = context.length("output tokens", tokens)
    elif said:
        row.output_len = estimate(said)
        context.note(ABOUT_LENGTH)
    elif (limit := given(about, *LIMIT)) is not None:
        row.more["max_tokens"] = checked("max_tokens", limit)
    row.more.update(sampling({ours: about.get(theirs) for theirs, ours in SAMPLING.items()}))
    for theirs, ours in OURS.items():
        if about.get(theirs) is not None:
            row.more[ours] = checked(ours, about[theirs])
    row.more |= {"id": f"{call.trace}/{call.id or start_ns}", **client(about, context, *CLIENT)}
    return row, Times(start_ns, end_ns)
