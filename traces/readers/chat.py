"""Chats and API bodies as the OpenAI interface has them: messages with parts, limits, sampling values."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from engine.errors import RequestError
from traces.readers.base import Context
from traces.readers.fields import checked, client, fields, given, show
from traces.rows import Drop, Row
from traces.workload import RequestSpec

SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos")
NOT_TEXT = "parts that are not text were left out"
CALLS_AS_TEXT = "tool calls were written out as text"
ONE_ANSWER = "one answer instead of several"
ROLES = {
    "human": "user", "gpt": "assistant", "bot": "assistant", "chatgpt": "assistant", "bing": "assistant",
    "bard": "assistant", "model": "assistant", "developer": "system",
}  # fmt: skip
"""Other words for roles."""

Messages = tuple[tuple[str, str], ...]


def role(value: Any) -> str:
    """One word for each role: user, assistant, system, or what it says; empty when it is none."""
    if not isinstance(value, str):
        return ""
    text = value.strip().lower()
    return ROLES.get(text, text)


def messages(value: Any) -> tuple[Messages, tuple[str, ...]]:
    """(role, content) of each message, and what had to be changed. Raises Drop."""
    if not isinstance(value, list) or not value:
        raise Drop("no messages", show(value))
    found: list[tuple[str, str]] = []
    reasons: dict[str, None] = {}
    for index, item in enumerate(value):
        speaker = role(item.get("role")) if isinstance(item, dict) else ""
        if not speaker:
            raise Drop("bad message", f"message {index} has no role")
        content = item.get("content")
        if not isinstance(content, str):
            content = _text(item.get("parts") if content is None else content, index, reasons)
        if not content and (calls := item.get("tool_calls") or item.get("function_call")):
            content = json.dumps(calls, ensure_ascii=False, separators=(",", ":"))
            reasons[CALLS_AS_TEXT] = None
        found.append((speaker, content))
    if not any(content for _, content in found):
        raise Drop("no text in the messages", f"{len(found)} messages")
    return tuple(found), tuple(reasons)


def _text(content: Any, index: int, reasons: dict[str, None]) -> str:
    if content is None:
        return ""
    if not isinstance(content, list):
        raise Drop("bad message", f"content of message {index} is neither text nor a list of parts")
    texts = []
    for part in content:
        text = part if isinstance(part, str) else _part(part)
        if text is None:
            reasons[NOT_TEXT] = None
        else:
            texts.append(text)
    return "\n".join(texts)


def _part(part: Any) -> str | None:
    if isinstance(part, dict) and part.get("type", "text") in ("text", "input_text", "output_text"):
        text = given(part, "text", "content")
        return text if isinstance(text, str) else None
    return None


def body(value: Any, context: Context) -> Row:
    """A request of an API body: `messages` or `prompt`, its limit and its sampling values. Raises Drop."""
    record = fields(value)
    more: dict[str, Any] = {}
    clamped: tuple[str, ...] = ()
    if record.get("messages") is not None:
        more["messages"], clamped = messages(record["messages"])
    elif record.get("prompt") is not None:
        more.update(_prompt(record["prompt"]))
    elif record.get("input") is not None:
        more["messages"], clamped = _input(record)
    else:
        raise Drop("no prompt", "neither messages nor prompt in the body")
    limit = given(record, "max_completion_tokens", "max_tokens", "max_output_tokens")
    if limit is not None:
        more["max_tokens"] = checked("max_tokens", limit)
        context.note("max_tokens is the most a request may generate; how much it really did is not in the file")
    more.update(sampling(record))
    if isinstance(count := record.get("n"), int) and count > 1:
        clamped += (ONE_ANSWER,)
    if record.get("tools"):
        context.note("tools are not put into the prompt")
    more.update(client(record, context, "user"))
    return Row(more=more, clamped=clamped)


def sampling(record: dict[str, Any]) -> dict[str, Any]:
    """The sampling values that are given, checked. Raises Drop."""
    values = {field: checked(field, record[field]) for field in SAMPLING if record.get(field) not in (None, [])}
    if values and (problem := _contradiction(tuple(values.items()))):
        raise Drop(f"bad {problem.split()[0]}", problem)
    return values


@lru_cache(256)
def _contradiction(values: tuple[tuple[str, Any], ...]) -> str | None:
    """What is wrong with sampling values that are each of the right kind. Files repeat the same few."""
    try:
        RequestSpec("", prompt_len=1, **dict(values)).sampling()
    except RequestError as error:
        return str(error)
    return None


def _input(record: dict[str, Any]) -> tuple[Messages, tuple[str, ...]]:
    """Of the responses interface: a text, or items of which the messages count, and instructions before them."""
    value = record["input"]
    items = [{"role": "user", "content": value}] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise Drop("no messages", show(value))
    said = [item for item in items if isinstance(item, dict) and "role" in item]
    system = record.get("instructions")
    found, clamped = messages(([{"role": "system", "content": system}] if system else []) + said)
    return found, clamped if len(said) == len(items) else (*clamped, NOT_TEXT)


def _prompt(value: Any) -> dict[str, Any]:
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return {"prompt": checked("prompt", value)}
    if isinstance(value, list) and value and not isinstance(value[0], str | list):
        return {"prompt_ids": checked("prompt_ids", value)}
    raise Drop("not one prompt", f"{show(value)} is not one text or list of token ids")
