"""Spans as OTLP JSON, checked against the encoding's rules (opentelemetry-proto: JSON Protobuf Encoding)."""

from __future__ import annotations

import io
import json
import re
from itertools import pairwise
from typing import Any

import pytest

from engine.records import Kind, Preempted
from engine.request import FinishReason
from engine.sampling_params import SamplingParams
from tests.traces.exports.runs import Run, random_run
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.exports.otel import write_otel

WALL = 1_764_000_000 * 10**9


def spans_of(run: Run, **options: Any) -> list[dict[str, Any]]:
    out = io.StringIO()
    write_otel(run.info, iter(run.records), out, wall_ns=WALL, **options)
    (resource,) = json.loads(out.getvalue())["resourceSpans"]
    assert values(resource["resource"])["service.name"] == "workbench"
    (scope,) = resource["scopeSpans"]
    for span in scope["spans"]:
        check(span)
    spans: list[dict[str, Any]] = scope["spans"]
    return spans


def values(holder: dict[str, Any]) -> dict[str, Any]:
    """Attributes as plain values; the encoding of each is checked."""
    out: dict[str, Any] = {}
    for attribute in holder["attributes"]:
        assert set(attribute) == {"key", "value"} and attribute["key"] not in out
        out[attribute["key"]] = plain(attribute["value"])
    return out


def plain(value: dict[str, Any]) -> Any:
    ((kind, inside),) = value.items()
    match kind:
        case "stringValue":
            assert type(inside) is str
        case "intValue":
            assert type(inside) is str, "64-bit integers are strings"
            inside = int(inside)
        case "doubleValue":
            assert type(inside) is float
        case "boolValue":
            assert type(inside) is bool
        case "arrayValue":
            inside = [plain(item) for item in inside["values"]]
        case _:
            raise AssertionError(kind)
    return inside


def check(span: dict[str, Any]) -> None:
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and int(span["traceId"], 16)
    assert re.fullmatch("[0-9a-f]{16}", span["spanId"]) and int(span["spanId"], 16)
    for name in ("startTimeUnixNano", "endTimeUnixNano"):
        assert type(span[name]) is str and span[name].isdigit()
    assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
    assert span["kind"] in (1, 2) and span["status"]["code"] in (0, 2)
    for event in span.get("events", []):
        assert int(span["startTimeUnixNano"]) <= int(event["timeUnixNano"]) <= int(span["endTimeUnixNano"])
        values(event)
    values(span)


def lived() -> Run:
    params = SamplingParams(temperature=0.5, top_p=0.9, seed=7, stop=("END",))
    new = arrived("r", 0.25, 6, client="c", priority=2, max_tokens=9, params=params, session="s")
    return Run(
        info(),
        [
            record(0, 0.5, 1.0, arrived=(new._replace(prompt_text="What is it?"),)),
            record(1, 1.0, 2.0, scheduled=(scheduled("r", 4, before=2, kind=Kind.NEW),), tokens=(token("r"),)),
            record(2, 2.0, 3.0, preempted=(Preempted("r", "x", 1, 0, 7, 2),)),
            record(3, 3.0, 5.0, scheduled=(scheduled("r", kind=Kind.RESUMED),), tokens=(token("r", text="y"),),
                   finished=(finished("r", prompt_len=6, output_len=2, cached_tokens=2, preemptions=1, tail="!"),)),
        ],
    )  # fmt: skip


def test_a_request_by_hand() -> None:
    root, *phases = spans_of(lived())
    assert (root["name"], root["kind"], root["status"]) == ("chat tiny", 2, {"code": 0})
    assert int(root["startTimeUnixNano"]) == WALL + 250_000_000 and int(root["endTimeUnixNano"]) == WALL + 5 * 10**9
    expected = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "workbench", "gen_ai.request.model": "tiny",
        "gen_ai.request.max_tokens": 9, "gen_ai.request.temperature": 0.5, "gen_ai.request.top_p": 0.9,
        "gen_ai.request.seed": 7, "gen_ai.request.stop_sequences": ["END"], "gen_ai.conversation.id": "s",
        "gen_ai.usage.input_tokens": 6, "gen_ai.usage.output_tokens": 2,
        "gen_ai.response.finish_reasons": ["length"], "gen_ai.request.id": "r",
        "gen_ai.latency.time_in_queue": 0.75, "gen_ai.latency.time_to_first_token": 1.75,
        "gen_ai.latency.e2e": 4.75, "gen_ai.latency.time_in_model_prefill": 1.0,
        "gen_ai.latency.time_in_model_decode": 3.0, "gen_ai.latency.time_in_model_inference": 4.0,
        "workbench.client": "c", "workbench.priority": 2, "workbench.preemptions": 1,
    }  # fmt: skip
    told = values(root)
    assert {name: told[name] for name in expected} == expected
    assert "error.type" not in told and "gen_ai.request.top_k" not in told
    assert [(event["name"], int(event["timeUnixNano"]) - WALL) for event in root["events"]] == [
        ("first_token", 2 * 10**9), ("preempted", 2 * 10**9),
    ]  # fmt: skip
    assert [
        (span["name"], int(span["startTimeUnixNano"]) - WALL, int(span["endTimeUnixNano"]) - WALL) for span in phases
    ] == [
        ("queued", 250_000_000, 10**9), ("prefill", 10**9, 2 * 10**9), ("decode", 2 * 10**9, 2 * 10**9),
        ("preempted", 2 * 10**9, 3 * 10**9), ("decode", 3 * 10**9, 5 * 10**9),
    ]  # fmt: skip
    assert {(span["traceId"], span["parentSpanId"]) for span in phases} == {(root["traceId"], root["spanId"])}


def test_text_only_when_asked_for() -> None:
    plainly = json.dumps(spans_of(lived()))
    assert "What is it?" not in plainly and "messages" not in plainly
    told = values(spans_of(lived(), content=True)[0])
    assert json.loads(told["gen_ai.input.messages"]) == [
        {"role": "user", "parts": [{"type": "text", "content": "What is it?"}]}
    ]
    assert json.loads(told["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "xy!"}], "finish_reason": "length"}
    ]


@pytest.mark.parametrize("seed", range(4))
def test_random_runs(seed: int) -> None:
    run = random_run(seed, steps=120)
    spans = spans_of(run)
    assert len({span["spanId"] for span in spans}) == len(spans)
    roots = {values(span)["gen_ai.request.id"]: span for span in spans if "parentSpanId" not in span}
    arrived_ids = {new.id for it in run.records for new in it.arrived}
    assert roots.keys() == arrived_ids | {"too-long"}
    assert roots["too-long"]["status"]["code"] == 2
    assert "200 tokens" in roots["too-long"]["status"]["message"]
    assert values(roots["too-long"])["error.type"] == "rejected"
    reasons = {done.id: done.reason for it in run.records for done in it.finished}
    for id in arrived_ids:
        span = roots[id]
        assert (span["status"]["code"] == 2) == (reasons.get(id) is FinishReason.ERROR)
        assert ("workbench.unfinished" in values(span)) == (id not in reasons)
        children = [child for child in spans if child.get("parentSpanId") == span["spanId"]]
        assert children[0]["startTimeUnixNano"] == span["startTimeUnixNano"]
        assert children[-1]["endTimeUnixNano"] == span["endTimeUnixNano"]
        for one, two in pairwise(children):
            assert one["endTimeUnixNano"] == two["startTimeUnixNano"]
    assert spans_of(run) == spans, "the same recording gives the same file"


def test_a_failed_request_is_an_error() -> None:
    records = [
        record(0, 0.0, 1.0, arrived=(arrived("r", 0.0),), scheduled=(scheduled("r", 4, kind=Kind.NEW),)),
        record(1, 1.0, 2.0, finished=(finished("r", FinishReason.ERROR, detail="the engine failed"),)),
    ]
    root = spans_of(Run(info(), records))[0]
    assert root["status"] == {"code": 2, "message": "the engine failed"} and values(root)["error.type"] == "error"
    assert int(root["endTimeUnixNano"]) == WALL + 10**9, "it did not run in the second iteration"
