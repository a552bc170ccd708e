"""The project's own workload format: JSON lines, one request a row. `FIELDS` is its definition.

Invariant: each bad row is named by file, line and field with what is allowed. Unknown fields are refused by name: a
misspelt one must not be ignored. `null` means "not given". Whole numbers may be written `5.0`, not `5.5` and not `"5"`.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable
from typing import Any, NamedTuple

from engine.errors import RequestError
from traces.readers.base import LIKELY, MAYBE, NO, SURE, Container, Context, Head, Reader
from traces.readers.times import to_ns
from traces.rows import Drop, Row
from traces.workload import RequestSpec

MOST_TOKENS = 1 << 24
MOST_RANDOM = 1 << 20
"""Random prompts are drawn before an engine can refuse them."""
YEAR = 365 * 24 * 3600
BLOCK = 512
"""Tokens of a prefix id when a row does not say: those of the Mooncake traces."""


class Bad(Exception):
    """What is wrong with a value, and what is allowed."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise Bad(f"{_show(value)} is not text in quotes")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Bad(f"holds half of a surrogate pair at character {error.start}") from None
    return value


def _prompt(value: Any) -> str:
    if not (text := _text(value)):
        raise Bad("is empty; a prompt needs at least one character")
    return text


def _name(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    text = _text(value)
    if not text.strip() or len(text) > 256:
        raise Bad(f"{_show(value)} is not 1..256 characters long")
    return text


def _number(low: float, high: float, hint: str = "") -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, str):
            raise Bad(f"{_show(value)} is text; write the number without quotes")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Bad(f"{_show(value)} is not a number")
        if isinstance(value, float) and not math.isfinite(value):
            raise Bad(f"{value} is not a finite number")
        if not low <= value <= high:
            raise Bad(f"{_show(value)} is out of range, allowed: {low:.15g}..{high:.15g}{hint}")
        return float(value)

    return read


def _seconds(high: float) -> Callable[[Any], float]:
    check = _number(0, high)

    def read(value: Any) -> float:
        if not (number := check(value)):
            raise Bad(f"{_show(value)} is out of range, allowed: above 0, at most {high:.15g}")
        return number

    return read


def _whole(low: int, high: int) -> Callable[[Any], int]:
    check = _number(low, high)

    def read(value: Any) -> int:
        if isinstance(value, float) and math.isfinite(value) and value != int(value):
            raise Bad(f"{value} is not a whole number, allowed: {low}..{high}")
        check(value)
        return int(value)

    return read


def _ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise Bad("must be a list of at least one token id")
    read = _whole(0, (1 << 31) - 1)
    ids = []
    for index, item in enumerate(value):
        try:
            ids.append(read(item))
        except Bad as error:
            raise Bad(f"item {index}: {error}") from None
    return tuple(ids)


def _prefix_ids(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise Bad("must be a list of at least one prefix id")
    if set(map(type, value)) != {int} or not 0 <= min(value) <= max(value) < 1 << 64:
        index, item = next((at, of) for at, of in enumerate(value) if type(of) is not int or not 0 <= of < 1 << 64)
        raise Bad(f"item {index}: {_show(item)} is not a whole number, allowed: 0..2^64-1")
    return tuple(value)


def _prefix_lens(value: Any) -> tuple[int, ...]:
    lens = value if isinstance(value, list) else [value]
    if not lens:
        raise Bad("must be a number of tokens or a list of them")
    return tuple(map(_length, lens))


_length = _whole(1, MOST_TOKENS)


def _stop(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list):
        raise Bad("must be text or a list of texts")
    if not all(isinstance(text, str) and text for text in texts):
        raise Bad("stop strings must be text and not empty")
    return tuple(map(_text, texts))


def _messages(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise Bad('must be a list of at least one {"role": ..., "content": ...}')
    messages = []
    for index, item in enumerate(value):
        if not isinstance(item, dict) or set(item) != {"role", "content"}:
            raise Bad(f"message {index} must have exactly role and content")
        if not all(isinstance(part, str) for part in item.values()):
            raise Bad(f"message {index}: role and content must be text")
        messages.append((_text(item["role"]), _text(item["content"])))
    return tuple(messages)


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Bad(f"{_show(value)} is not true or false")
    return value


class Field(NamedTuple):
    name: str
    read: Callable[[Any], Any]
    help: str


_ROWS = (
    Field("id", _name, "name of the request, unique in the file (default: line-N)"),
    Field(
        "arrival",
        _number(0, YEAR, " seconds after the start, not a date"),
        "seconds after the start of the run (default 0)",
    ),
    Field("t_ns", _whole(0, YEAR * 10**9), "the same in whole nanoseconds, in place of `arrival`"),
    Field("prompt", _prompt, "text, encoded as it is"),
    Field("messages", _messages, "a chat: list of role and content, through the model's chat template"),
    Field("prompt_ids", _ids, "token ids"),
    Field("prompt_len", _whole(0, MOST_RANDOM), "that many tokens: those of `prefix_ids`, the rest random"),
    Field("prefix_ids", _prefix_ids, "what the prompt begins with: one id stands for the same tokens in every row"),
    Field("prefix_lens", _prefix_lens, f"tokens of each prefix id: one number for all, or a list (default {BLOCK})"),
    Field("output_len", _whole(0, MOST_TOKENS), "exactly that many output tokens, EOS ignored"),
    Field("max_tokens", _whole(1, MOST_TOKENS), "most output tokens (default: up to max_model_len)"),
    Field("expected_output", _whole(1, MOST_TOKENS), "output tokens an oracle predicts (default: output_len)"),
    Field("client", _name, "who asks (default: default)"),
    Field("priority", _whole(-(1 << 31), (1 << 31) - 1), "smaller is more urgent (default 0)"),
    Field("deadline", _seconds(YEAR), "seconds after arrival by which the first token should be there"),
    Field("session", _name, "conversation or agent it belongs to"),
    Field("turn", _whole(0, MOST_TOKENS), "its place in the session"),
    Field("after", _name, "id of the request that has to end first"),
    Field("delay", _number(0, YEAR), "seconds between that end and this arrival (default 0)"),
    Field("failed", _bool, "true: it failed where it was recorded; known, not sent, and its lengths may be 0"),
    Field("temperature", _number(0, 1e6), "0 is greedy (default)"),
    Field("top_p", _number(0, 1), "above 0, at most 1 (default 1)"),
    Field("top_k", _whole(-1, MOST_TOKENS), "0 or -1 keeps all (default)"),
    Field("min_p", _number(0, 1), "0..1 (default 0)"),
    Field("seed", _whole(-(1 << 63), (1 << 64) - 1), "of the sampler; default: from the run's seed and the id"),
    Field("stop", _stop, "text or list of texts that end the answer"),
    Field("stop_token_ids", _ids, "token ids that end the answer"),
    Field("ignore_eos", _bool, "go on after an end-of-sequence id"),
)
FIELDS: dict[str, Field] = {field.name: field for field in _ROWS}
PROMPTS = ("prompt", "messages", "prompt_ids", "prompt_len")
_OURS = frozenset(("prompt_len", "prompt_ids", "prefix_ids", "output_len", "arrival", "t_ns"))
"""Fields that no other format of prompts has: with one of them the file is surely native."""
_IDS = "ids"
"""In the context's state: id to the line that has it. An id is taken even when the rest of its row is bad."""


class Native(Reader):
    name = "native"
    title = "the workbench's own requests (JSON lines, seconds)"
    unit = "s"
    containers = (Container.JSONL, Container.JSON)
    from_start = True

    def sniff(self, head: Head) -> int:
        return max((_looks_native(record) for record in head.records if isinstance(record, dict)), default=NO)

    def parse(self, record: Any, context: Context) -> Row:
        if not isinstance(record, dict):
            raise Drop("not a JSON object", f"{_show(record)} is not a JSON object with fields")
        values = _values(record)
        t_ns = values.pop("t_ns", None)
        if "arrival" in values:
            if t_ns is not None:
                raise _fault("t_ns", "given together with 'arrival'; a request has one arrival")
            t_ns = to_ns(values.pop("arrival"), context.options.time_unit or "s")
        seen = context.state.setdefault(_IDS, {})
        if (id := values.get("id")) is not None and seen.setdefault(id, context.line) != context.line:
            raise _fault("id", f"{id!r} is already the id of line {seen[id]}")
        clamped: tuple[str, ...] = ()
        if "prefix_ids" in values:
            values["prefix_lens"], cut = _reach(values)
            if cut:
                clamped = ("more prefix ids than the prompt holds",)
        failed = values.pop("failed", False)
        return Row(t_ns, values.pop("prompt_len", None), values.pop("output_len", None), failed, clamped, values)


def _looks_native(record: dict[str, Any]) -> int:
    known = record.keys() & FIELDS.keys()
    prompts = record.keys() & set(PROMPTS)
    if prompts and len(known) == len(record):
        return SURE if known & _OURS else LIKELY + 5
    return MAYBE if prompts or (record and 2 * len(known) >= len(record)) else NO


def _values(row: dict[str, Any]) -> dict[str, Any]:
    """What a row gives, checked. Raises Drop that names the field."""
    values: dict[str, Any] = {}
    for name, value in row.items():
        field = FIELDS.get(name)
        if field is None:
            near = difflib.get_close_matches(name, FIELDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(FIELDS)}"
            raise Drop(f"unknown field {_show(name)}", f"field {_show(name)}: unknown; {hint}")
        if value is not None:
            try:
                values[name] = field.read(value)
            except Bad as error:
                raise _fault(name, str(error)) from None
    given = [name for name in PROMPTS if name in values]
    if not given:
        raise _fault("prompt", f"missing; give one of {', '.join(PROMPTS)}")
    if len(given) > 1:
        raise _fault(given[1], f"given together with {given[0]!r}; a request has one prompt")
    for name, most in (("prompt_len", MOST_RANDOM), ("output_len", MOST_TOKENS)):
        if values.get(name) == 0 and not values.get("failed"):
            raise _fault(name, f"0 is out of range, allowed: 1..{most}")
    if "output_len" in values:
        for other in ("max_tokens", "stop", "stop_token_ids"):
            if other in values:
                raise _fault(other, "contradicts 'output_len', which fixes the length; give one of the two")
        if values.get("ignore_eos") is False:
            raise _fault("ignore_eos", "false contradicts 'output_len', which ignores EOS; use 'max_tokens'")
    for name, needed in (("prefix_ids", "prompt_len"), ("prefix_lens", "prefix_ids"), ("delay", "after")):
        if name in values and needed not in values:
            raise _fault(name, f"has no meaning without {needed!r}")
    if sampling := {name: values[name] for name in _SAMPLING if name in values}:
        try:
            RequestSpec("", output_len=values.get("output_len") or None, **sampling).sampling()
        except RequestError as error:
            raise _fault(str(error).split()[0], str(error)) from None
    return values


_SAMPLING = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "stop", "stop_token_ids", "ignore_eos",
)  # fmt: skip


def _reach(values: dict[str, Any]) -> tuple[tuple[int, ...], bool]:
    """(tokens of each prefix id, whether ids beyond the prompt's end were left out of `values`)."""
    ids, lens = values["prefix_ids"], values.get("prefix_lens", (BLOCK,))
    if len(lens) not in (1, len(ids)):
        raise _fault("prefix_lens", f"{len(lens)} lengths for {len(ids)} prefix ids")
    if len(lens) == 1:
        used = min(len(ids), -(-values["prompt_len"] // lens[0]))
    else:
        reached = used = 0
        while used < len(ids) and reached < values["prompt_len"]:
            reached += lens[used]
            used += 1
    values["prefix_ids"] = ids[:used]
    return lens if len(lens) == 1 else lens[:used], used < len(ids)


def _fault(name: str, text: str) -> Drop:
    return Drop(f"bad {name}", f"field {name!r}: {text}")


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
