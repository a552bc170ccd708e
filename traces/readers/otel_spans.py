"""Spans of model calls out of OpenTelemetry JSON: OTLP (`resourceSpans`), and one object a trace (`trace_id`, `spans`).

The attribute names of the GenAI conventions, old and new, are in the tables here and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from traces.readers.chat import Messages, messages, role
from traces.readers.fields import given
from traces.rows import Drop

INPUT_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens")
OUTPUT_TOKENS = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens")
LIMIT = ("gen_ai.request.max_tokens", "llm.request.max_tokens")
INPUT = ("gen_ai.input.messages", "gen_ai.prompt")
OUTPUT_TEXT = ("gen_ai.output.text", "gen_ai.completion")
IN_EVENTS = {*INPUT, *OUTPUT_TEXT, "gen_ai.output.messages", "gen_ai.system_instructions"}
SESSION = ("gen_ai.conversation.id", "session.id", "exgentic.session.id")
CLIENT = ("workbench.client", "enduser.id", "user.id", "service.name")
OURS = {"workbench.priority": "priority", "workbench.deadline_s": "deadline"}
SAMPLING = {
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.top_k": "top_k",
    "gen_ai.request.seed": "seed",
}
CALLS = {"chat", "text_completion", "generate_content", "completion"}
"""Operations that generate. Others (tools, agents, embeddings) are not requests."""
ERROR = {"2", "STATUS_CODE_ERROR", "ERROR"}


class Span(NamedTuple):
    trace: str
    id: str
    start: Any
    """ISO text, or integer nanoseconds."""
    end: Any
    attributes: dict[str, Any]
    """Its own, over those of its resource."""
    failed: bool


def spans(record: Mapping[str, Any]) -> Iterator[Span]:
    """All spans of one record. Raises Drop where it is none of the forms."""
    resources = given(record, "resourceSpans", "resource_spans")
    if isinstance(resources, list):
        for resource in _objects(resources):
            about = _attributes(_object(resource.get("resource")).get("attributes"))
            for scope in _objects(given(resource, "scopeSpans", "scope_spans", "instrumentationLibrarySpans")):
                for span in _list(scope.get("spans")):
                    yield _span(span, about, "")
    elif isinstance(record.get("spans"), list):
        for span in record["spans"]:
            yield _span(span, {}, str(given(record, "trace_id", "traceId") or ""))
    elif "attributes" in record and span_id(record):
        yield _span(record, {}, "")
    else:
        raise Drop("no spans")


def span_id(span: Mapping[str, Any]) -> Any:
    """Python's SDK writes both ids into a `context`."""
    return given(span, "spanId", "span_id") or given(_object(span.get("context")), "span_id", "spanId")


def _span(span: Any, about: dict[str, Any], trace: str) -> Span:
    if not isinstance(span, dict):
        raise Drop("bad span", "a span is not a JSON object")
    attributes = {
        **about,
        **_attributes(given(span, "resource_attributes", "resourceAttributes")),
        **_attributes(_object(span.get("resource")).get("attributes")),
        **_attributes(span.get("attributes")),
    }
    for event in _objects(span.get("events")):  # where older instrumentation puts texts
        for key, value in _attributes(event.get("attributes")).items():
            if key in IN_EVENTS:
                attributes.setdefault(key, value)
    start, end = (
        given(span, f"{when}_time", f"{when}TimeUnixNano", f"{when}_time_unix_nano") for when in ("start", "end")
    )
    code = str(given(_object(span.get("status")), "code", "status_code"))
    trace = str(given(_object(span.get("context")), "trace_id", "traceId") or trace)
    return Span(
        str(given(span, "traceId", "trace_id") or trace),
        str(span_id(span) or ""),
        start,
        end,
        attributes,
        code in ERROR or "error.type" in attributes,
    )


def _attributes(value: Any) -> dict[str, Any]:
    """As a plain object, from one or from OTLP's list of keys and typed values."""
    if isinstance(value, dict):
        return value
    if not isinstance(value, list):
        return {}
    return {str(item["key"]): _plain(item.get("value")) for item in _objects(value) if "key" in item}


def _plain(value: Any) -> Any:
    if not isinstance(value, dict) or len(value) != 1:
        return value
    ((kind, inner),) = value.items()
    if kind == "intValue":
        return int(inner) if isinstance(inner, int | str) and str(inner).lstrip("-").isdigit() else inner
    if kind == "arrayValue":
        return [_plain(item) for item in _list(_object(inner).get("values"))]
    if kind == "kvlistValue":
        return _attributes(_object(inner).get("values"))
    return inner if kind in ("stringValue", "doubleValue", "boolValue", "bytesValue") else value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in _list(value) if isinstance(item, dict)]


def is_call(attributes: Mapping[str, Any]) -> bool:
    operation = attributes.get("gen_ai.operation.name")
    if operation is not None:
        return str(operation) in CALLS
    return given(attributes, *INPUT_TOKENS, *OUTPUT_TOKENS, *INPUT, "gen_ai.prompt.0.content") is not None


def prompt(attributes: Mapping[str, Any]) -> tuple[Messages | str | None, tuple[str, ...]]:
    """Messages, or plain text, or None where the span holds no text; and what had to be changed. Raises Drop."""
    value = _structure(given(attributes, *INPUT))
    if value is None and "gen_ai.prompt.0.content" in attributes:
        value = _numbered(attributes, "gen_ai.prompt")
    if isinstance(value, str):
        return value or None, ()
    if not isinstance(value, list) or not value:
        return None, ()
    system = _structure(attributes.get("gen_ai.system_instructions"))
    if system:
        value = [{"role": "system", "content": system}, *value]
    return messages(value)


def answer(attributes: Mapping[str, Any]) -> str | None:
    """The text that was generated, where it was recorded."""
    text = given(attributes, *OUTPUT_TEXT)
    if isinstance(text, str):
        return text
    value = _structure(attributes.get("gen_ai.output.messages"))
    if value is None and "gen_ai.completion.0.content" in attributes:
        value = _numbered(attributes, "gen_ai.completion")
    if not isinstance(value, list) or not value:
        return None
    try:
        said, _ = messages([{"role": "assistant", **item} if isinstance(item, dict) else item for item in value])
    except Drop:
        return None
    return "".join(content for speaker, content in said if role(speaker) == "assistant")


def _structure(value: Any) -> Any:
    """Attributes can only be text, so that lists are JSON in text; text that is not JSON stays what it is."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return [value] if isinstance(value, dict) else value
    return value


def _numbered(attributes: Mapping[str, Any], stem: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while f"{stem}.{len(found)}.content" in attributes:
        place = f"{stem}.{len(found)}"
        found.append({"role": attributes.get(f"{place}.role", "user"), "content": attributes[f"{place}.content"]})
    return found
