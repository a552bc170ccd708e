"""The project's own workload format: JSON lines, one request a row. `FIELDS` is its definition.

Invariant: everything is checked before anything runs, and each bad row is named by file, line and field with what
is allowed. Rows are read one at a time. Unknown fields are refused by name: a misspelt one must not be ignored.
`null` means "not given". Whole numbers may be written `5.0`, not `5.5` and not `"5"`.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from engine.errors import RequestError, WorkbenchError
from traces.errors import WorkloadError
from traces.readers.files import read_lines
from traces.workload import RequestSpec, Workload

MOST_TOKENS = 1 << 24
MOST_RANDOM = 1 << 20
"""Random prompts are drawn before an engine can refuse them."""
YEAR = 365 * 24 * 3600


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
    Field("prompt", _prompt, "text, encoded as it is"),
    Field("messages", _messages, "a chat: list of role and content, through the model's chat template"),
    Field("prompt_ids", _ids, "token ids"),
    Field("prompt_len", _whole(1, MOST_RANDOM), "that many random tokens"),
    Field("output_len", _whole(1, MOST_TOKENS), "exactly that many output tokens, EOS ignored"),
    Field("max_tokens", _whole(1, MOST_TOKENS), "most output tokens (default: up to max_model_len)"),
    Field("expected_output", _whole(1, MOST_TOKENS), "output tokens an oracle predicts (default: output_len)"),
    Field("client", _name, "who asks (default: default)"),
    Field("priority", _whole(-(1 << 31), (1 << 31) - 1), "smaller is more urgent (default 0)"),
    Field("deadline", _seconds(YEAR), "seconds after arrival by which the first token should be there"),
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


def read_workload(path: Path, *, skip_bad: bool = False) -> Workload:
    """All rows of a file. Strict: raises WorkloadError naming every bad row, unless `skip_bad` leaves them out."""
    specs: list[RequestSpec] = []
    problems: list[str] = []
    first_line: dict[str, int] = {}
    unstamped = disorder = 0
    for line, raw in read_lines(path):
        if not raw.strip():
            continue
        where = f"{path}:{line}"
        try:
            row = _parse(raw, first=not specs and not problems)
            spec = _spec(row, where, line)
            if spec.id in first_line:
                raise Bad(f"field 'id': {spec.id!r} is already the id of line {first_line[spec.id]}")
        except Bad as error:
            problems.append(f"{where}: {error}")
            continue
        first_line[spec.id] = line
        unstamped += row.get("arrival") is None
        disorder += bool(specs) and spec.arrival < specs[-1].arrival
        specs.append(spec)
    if problems and not skip_bad:
        raise WorkloadError(str(path), problems, "\n  (--skip-bad leaves bad rows out)" if specs else "")
    if not specs:
        raise WorkbenchError(f"{path} holds no {'good rows' if problems else 'requests'}")
    notes = []
    if problems:
        notes.append(f"{path}: {len(problems)} bad rows skipped, {len(specs)} left")
    if 0 < unstamped < len(specs):
        notes.append(f"{path}: {unstamped} of {len(specs)} rows have no arrival and come at 0 s")
    if disorder:
        notes.append(f"{path}: rows are not in order of arrival ({disorder} step back); arrival times hold")
    return Workload(str(path), tuple(specs), tuple(problems), tuple(notes))


def _parse(raw: bytes, *, first: bool) -> dict[str, Any]:
    try:
        row = json.loads(raw.decode(), object_pairs_hook=_no_repeats)
    except UnicodeDecodeError as error:
        raise Bad(f"not UTF-8 text at byte {error.start}") from None
    except json.JSONDecodeError as error:
        if first and raw.lstrip().startswith((b"[", b"{")) and raw.strip() in (b"[", b"{"):
            raise Bad("looks like one JSON document over many lines; this format has one JSON object a line") from None
        if first and raw.lstrip()[:1] == b"<":
            raise Bad("looks like HTML or XML; this format has one JSON object a line") from None
        raise Bad(f"not JSON: {error.msg} at column {error.colno}") from None
    except (ValueError, RecursionError) as error:  # more digits or levels than Python reads
        raise Bad(f"not readable JSON: {str(error).split(';')[0]}") from None
    if not isinstance(row, dict):
        raise Bad(f"{_show(row)} is not a JSON object with fields")
    return row


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Bad(f"field {_show(twice)}: given twice")
    return row


def _spec(row: dict[str, Any], where: str, line: int) -> RequestSpec:
    values: dict[str, Any] = {}
    for name, value in row.items():
        field = FIELDS.get(name)
        if field is None:
            near = difflib.get_close_matches(name, FIELDS, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(FIELDS)}"
            raise Bad(f"field {_show(name)}: unknown; {hint}")
        if value is not None:
            try:
                values[name] = field.read(value)
            except Bad as error:
                raise Bad(f"field {name!r}: {error}") from None
    given = [name for name in PROMPTS if name in values]
    if not given:
        raise Bad(f"field 'prompt': missing; give one of {', '.join(PROMPTS)}")
    if len(given) > 1:
        raise Bad(f"field {given[1]!r}: given together with {given[0]!r}; a request has one prompt")
    if "output_len" in values:
        for other in ("max_tokens", "stop", "stop_token_ids"):
            if other in values:
                raise Bad(f"field {other!r}: contradicts 'output_len', which fixes the length; give one of the two")
        if values.get("ignore_eos") is False:
            raise Bad("field 'ignore_eos': false contradicts 'output_len', which ignores EOS; use 'max_tokens'")
    spec = RequestSpec(**{"id": f"line-{line}", **values}, where=where)
    try:
        spec.sampling()
    except RequestError as error:
        raise Bad(f"field {str(error).split()[0]!r}: {error}") from None
    return spec


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=True)
    return text if len(text) <= 60 else text[:57] + "..."
