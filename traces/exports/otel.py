"""OpenTelemetry spans of requests, by the GenAI conventions, as OTLP JSON (one ExportTraceServiceRequest).

A request is a trace: a span `chat MODEL` from its planned arrival to its end, and below it a span for each phase.
Failed and refused ones have status ERROR; aborted ones do not. Times are Unix nanoseconds: `wall_ns` + engine clock.
Ids are hashes of `wall_ns`, model, number and id of the request, so the same recording gives the same file.

OTLP JSON: 64-bit integers are strings, ids are hex, enums are numbers.
Text of prompts and outputs is left out unless `content` asks for it.
Omission: a refused request has no arrival in the records; its span begins and ends where it was refused.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from hashlib import blake2b
from typing import IO, Any

from engine.host import EngineInfo
from engine.records import Iteration
from engine.sampling_params import SamplingParams
from traces.exports.lives import Life, Lives, Span
from traces.exports.run import Job, run_exports
from traces.exports.target import Out

NAMES = {
    "operation": "gen_ai.operation.name",
    "provider": "gen_ai.provider.name",
    "model": "gen_ai.request.model",
    "response_model": "gen_ai.response.model",
    "conversation": "gen_ai.conversation.id",
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
    "top_k": "gen_ai.request.top_k",
    "seed": "gen_ai.request.seed",
    "stop": "gen_ai.request.stop_sequences",
    "finish_reasons": "gen_ai.response.finish_reasons",
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
    "input": "gen_ai.input.messages",
    "output": "gen_ai.output.messages",
    "error": "error.type",
    # vLLM's
    "id": "gen_ai.request.id",
    "queue": "gen_ai.latency.time_in_queue",
    "ttft": "gen_ai.latency.time_to_first_token",
    "e2e": "gen_ai.latency.e2e",
    "prefill": "gen_ai.latency.time_in_model_prefill",
    "decode": "gen_ai.latency.time_in_model_decode",
    "inference": "gen_ai.latency.time_in_model_inference",
    # ours
    "client": "workbench.client",
    "priority": "workbench.priority",
    "after": "workbench.after",
    "deadline": "workbench.deadline_s",
    "preemptions": "workbench.preemptions",
    "recomputed": "workbench.recomputed_tokens",
    "requeue": "workbench.requeue_s",
    "unfinished": "workbench.unfinished",
    "phase": "workbench.phase",
}
"""The conventions are not settled: every name is here and nowhere else."""
OPERATION = "chat"
SERVER, INTERNAL = 2, 1
"""SpanKind."""
UNSET, ERROR = 0, 2
"""StatusCode."""


def write_otel(
    info: EngineInfo,
    iterations: Iterable[Iteration],
    out: Out,
    *,
    wall_ns: int = 0,
    content: bool = False,
    force: bool = False,
) -> None:
    """wall_ns: Unix time of the engine clock's zero. content: with the text of prompts and outputs."""
    run_exports(info, iterations, [otel_job(out, wall_ns=wall_ns, content=content)], force=force)


def otel_job(out: Out, *, wall_ns: int = 0, content: bool = False) -> Job:
    return Job(partial(OtelSpans, wall_ns=wall_ns, content=content), out, text=content)


class OtelSpans:
    """See `Export`. `file` takes text. The span of a request is written when it ends."""

    def __init__(self, info: EngineInfo, file: IO[str], *, wall_ns: int = 0, content: bool = False) -> None:
        self._info, self._write, self._wall_ns, self._content = info, file.write, wall_ns, content
        self._model = info.model
        self._comma = ""
        resource = {
            "service.name": "workbench",
            "workbench.model": info.model,
            "workbench.device": info.device,
            "workbench.dtype": info.dtype,
            **{f"workbench.knob.{name}": value for name, value in info.config.values().items()},
        }
        self._write('{"resourceSpans":[{"resource":{"attributes":')
        self._write(json.dumps(_attributes(resource)))
        self._write('},"scopeSpans":[{"scope":{"name":"workbench"},"spans":[\n')

    def add(self, it: Iteration, known: Iteration, lives: Lives) -> None:
        for life in lives.ended:
            self._request(life)
        if it.rebuilt is not None:
            self._model = it.rebuilt.model

    def finish(self, lives: Lives) -> None:
        for life in lives.rest():
            self._request(life)
        self._write("\n]}]}]}\n")

    def _request(self, life: Life) -> None:
        key = json.dumps([self._wall_ns, self._info.model, life.serial, life.row.id]).encode()
        trace, root = blake2b(key, digest_size=16).hexdigest(), blake2b(key, digest_size=8).hexdigest()
        end = life.spans[-1].end if life.spans else life.began
        status: dict[str, Any] = {"code": UNSET}
        if life.failed:
            status = {"code": ERROR, "message": life.row.detail or str(life.row.finish_reason)}
        self._span(
            {
                "traceId": trace,
                "spanId": root,
                "name": f"{OPERATION} {self._model}",
                "kind": SERVER,
                "startTimeUnixNano": self._unix(life.began),
                "endTimeUnixNano": self._unix(end),
                "attributes": _attributes(self._about(life)),
                "events": self._events(life),
                "status": status,
            }
        )
        for number, span in enumerate(life.spans):
            self._span(self._phase(span, trace, root, number))

    def _phase(self, span: Span, trace: str, root: str, number: int) -> dict[str, Any]:
        return {
            "traceId": trace,
            "spanId": blake2b(f"{root}:{number}".encode(), digest_size=8).hexdigest(),
            "parentSpanId": root,
            "name": str(span.doing),
            "kind": INTERNAL,
            "startTimeUnixNano": self._unix(span.start),
            "endTimeUnixNano": self._unix(span.end),
            "attributes": _attributes({NAMES["phase"]: str(span.doing)}),
            "status": {"code": UNSET},
        }

    def _events(self, life: Life) -> list[dict[str, Any]]:
        events: list[dict[str, Any]] = []
        if life.first_token is not None:
            events.append({"timeUnixNano": self._unix(life.first_token), "name": "first_token", "attributes": []})
        for at, victim in life.events:
            told = {f"workbench.{name}": value for name, value in victim._asdict().items()}
            events.append({"timeUnixNano": self._unix(at), "name": "preempted", "attributes": _attributes(told)})
        return sorted(events, key=lambda event: int(event["timeUnixNano"]))

    def _about(self, life: Life) -> dict[str, Any]:
        row, new = life.row, life.arrived
        about: dict[str, Any] = {
            "operation": OPERATION,
            "provider": "workbench",
            "model": self._info.model,
            "response_model": self._model,
            "id": row.id,
            "client": row.client,
            "conversation": row.session,
            "after": row.after,
            "input_tokens": row.prompt_len,
            "output_tokens": life.output_len,
            "cached_tokens": row.cached_tokens,
            "finish_reasons": [row.finish_reason] if row.finish_reason else None,
            "error": row.finish_reason if life.failed else None,
            "queue": row.queue_s,
            "ttft": row.ttft_s,
            "e2e": row.e2e_s,
            "prefill": life.prefill_s,
            "decode": life.decode_s,
            "inference": life.inference_s,
            "deadline": row.deadline_s,
            "preemptions": row.preemptions,
            "recomputed": row.recomputed_tokens,
            "requeue": row.requeue_s if row.preemptions else None,
            "unfinished": True if row.finish_reason is None else None,
        }
        if new is not None:
            about |= {"priority": new.priority, "max_tokens": new.max_tokens, **_sampling(new.params)}
            if self._content:
                about["input"] = _message("user", new.prompt_text)
                about["output"] = _message("assistant", row.text, row.finish_reason)
        return {NAMES[name]: value for name, value in about.items() if value is not None}

    def _unix(self, seconds: float) -> str:
        return str(self._wall_ns + round(seconds * 1e9))

    def _span(self, span: dict[str, Any]) -> None:
        self._write(self._comma + json.dumps(span, separators=(",", ":")))
        self._comma = ",\n"


def _sampling(params: SamplingParams) -> dict[str, Any]:
    return {
        "temperature": float(params.temperature),
        "top_p": float(params.top_p),
        "top_k": params.top_k if params.top_k > 0 else None,
        "seed": params.seed,
        "stop": list(params.stop) or None,
    }


def _message(role: str, text: str | None, reason: str | None = None) -> str | None:
    if text is None:
        return None
    message: dict[str, Any] = {"role": role, "parts": [{"type": "text", "content": text}]}
    if reason is not None:
        message["finish_reason"] = reason
    return json.dumps([message], ensure_ascii=False)


def _attributes(values: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": _any_value(value)} for key, value in values.items() if value is not None]


def _any_value(value: Any) -> dict[str, Any]:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)} if -(2**63) <= value < 2**63 else {"stringValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_any_value(item) for item in value]}}
        case _:
            return {"stringValue": str(value)}
