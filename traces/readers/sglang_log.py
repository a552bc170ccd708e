"""SGLang's request log as JSON lines (`--log-requests-format json`): one row a `request.finished` event.

Lines are in order of completion; a request began its `e2e_latency` before. The event `request.received` says nothing
more and is counted as no request. Prompts are taken from the logged text or ids, else from their length.
"""

from __future__ import annotations

from typing import Any

from traces.readers.base import NO, SURE, Container, Context, Head, Reader
from traces.readers.chat import sampling
from traces.readers.fields import checked, client, fields, given, name
from traces.rows import Drop, Row

EVENTS = {"request.received", "request.finished"}


class SGLangLog(Reader):
    name = "sglang-log"
    title = "SGLang request log (JSON): texts or lengths; dates"
    unit = "date"
    containers = (Container.JSONL, Container.JSON)

    def sniff(self, head: Head) -> int:
        ours = any(isinstance(r, dict) and str(r.get("event")) in EVENTS and "rid" in r for r in head.records)
        return SURE if ours else NO

    def parse(self, record: Any, context: Context) -> Row:
        record = fields(record)
        if record.get("event") != "request.finished":
            raise Drop("an event that is not a finished request", str(record.get("event")))
        out = record.get("out")
        about = out.get("meta_info") if isinstance(out, dict) else None
        if not isinstance(about, dict):
            raise Drop("no meta_info", "the event does not tell lengths")
        asked = record["obj"] if isinstance(record.get("obj"), dict) else {}
        row = Row(_began(record, about, context))
        row.output_len = context.length("completion_tokens", about.get("completion_tokens"))
        if isinstance(text := asked.get("text"), str) and text:
            row.more["prompt"] = text
        elif isinstance(ids := asked.get("input_ids"), list) and ids and isinstance(ids[0], int):
            row.more["prompt_ids"] = checked("prompt_ids", ids)
        else:
            row.prompt_len = context.length("prompt_tokens", about.get("prompt_tokens"))
        ended = about.get("finish_reason")
        row.failed = isinstance(ended, dict) and ended.get("type") == "abort"
        if isinstance(wanted := asked.get("sampling_params"), dict):
            # The recorded length is exact: what could end a request earlier must not come along.
            row.more |= sampling({k: v for k, v in wanted.items() if k in ("temperature", "top_p", "top_k", "min_p")})
        if (id := name(record.get("rid"))) is not None:
            row.more["id"] = id
        row.more.update(client({**asked, **record}, context))
        return row


def _began(record: dict[str, Any], about: dict[str, Any], context: Context) -> int:
    stamp = given(about, "request_received_ts")
    if stamp is not None:
        return context.time(stamp, "s")
    end_ns = context.time(record.get("timestamp"), "s")
    took = about.get("e2e_latency")
    if took is None:
        context.note("some requests have no e2e_latency: their end stands for their beginning")
        return end_ns
    return end_ns - context.time(took, "s")
