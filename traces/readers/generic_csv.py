"""Any CSV that names its columns as people do: a prompt length, an output length, perhaps a time and who asked.

Times that are numbers are taken in the unit their column says (`arrival_ms`, `t_ns`), else in seconds, and that is
told: `--time-unit` says another. Header-less files get their names with `--columns`.

Columns of the workbench's own tables (`after`, `delay`, `turn`, `priority`, `deadline`) are read, too; an empty cell
gives nothing. Such files are read row by row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from traces.readers.base import MAYBE, NO, Container, Context, Head, Reader
from traces.readers.fields import checked
from traces.readers.table import Table
from traces.readers.times import NUMBER, UNITS
from traces.rows import Drop, Row

_PROMPTS = (
    "prompt_len", "prompt_length", "prompt_tokens", "num_prompt_tokens", "input_len", "input_length", "input_tokens",
    "num_input_tokens", "input_toks", "context_tokens", "contexttokens", "request_tokens", "prefill_tokens", "isl",
)  # fmt: skip
_OUTPUTS = (
    "output_len", "output_length", "output_tokens", "num_output_tokens", "output_toks", "generated_tokens",
    "generatedtokens", "response_tokens", "completion_tokens", "decode_tokens", "osl",
)  # fmt: skip
_TIMES = (
    "arrival", "arrival_time", "arrived_at", "arrival_timestamp", "timestamp", "time", "t", "start", "start_time",
    "request_time", "req_time", "created", "created_at",
)  # fmt: skip
_TEXTS = {
    "id": ("id", "request_id", "req_id"),
    "client": ("client", "client_id", "user", "user_id", "tenant", "tenant_id"),
    "session": ("session", "session_id", "conversation_id", "chat_id"),
}

_OURS = ("priority", "turn", "after", "delay", "deadline")
_TABLE = "table"


class GenericCsv(Reader):
    name = "csv"
    title = "CSV with columns for prompt and output lengths, and perhaps times, clients, sessions"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        return MAYBE if _column(head.columns, _PROMPTS) and _column(head.columns, _OUTPUTS) else NO

    def table(self, head: Head, context: Context) -> Table | None:
        columns = head.columns
        time, unit = _time(columns)
        if time and not unit and context.options.time_unit is None:
            context.note(f"{time!r} does not say its unit: numbers are taken as seconds (--time-unit says another)")
        texts = tuple((column, name) for name, names in _TEXTS.items() if (column := _column(columns, names)))
        prompt, output = _column(columns, _PROMPTS), _column(columns, _OUTPUTS)
        table = Table(prompt or _PROMPTS[0], output or _OUTPUTS[0], time, unit or "s", texts)
        ours = {name: column for name in _OURS if (column := _column(columns, (name,)))}
        if not ours:
            return table
        context.state[_TABLE] = table, ours
        if extra := [name for name in columns if name and name not in (*table.used, *ours.values())]:
            context.note(f"columns that are not used: {', '.join(extra)}")
        return None

    def parse(self, record: Any, context: Context) -> Row:
        table, ours = context.state[_TABLE]
        row: Row = table.parse(record, context)
        row.more.update(_more(record, ours))
        return row


def _more(record: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, Any]:
    """What the workbench's own columns give. Raises Drop."""
    more: dict[str, Any] = {}
    for name, column in ours.items():
        if text := record[column]:
            more[name] = checked(name, text if name == "after" else _number(name, text))
    if "after" not in more:
        more.pop("delay", None)
    return more


def _number(name: str, text: str) -> float:
    if NUMBER.fullmatch(text) is None:
        raise Drop(f"bad {name}", f"{text[:40]!r} is not a number")
    return float(text)


def _time(columns: Iterable[str]) -> tuple[str, str]:
    """(column, the unit its name ends with); "" where there is none."""
    columns = tuple(columns)
    if column := _column(columns, _TIMES):
        return column, ""
    for unit in UNITS:
        if column := _column(columns, tuple(f"{name}_{unit}" for name in _TIMES)):
            return column, unit
    return "", ""


def _column(columns: Iterable[str], names: tuple[str, ...]) -> str | None:
    plain = {name.lower().replace(" ", "_").replace("-", "_"): name for name in reversed(tuple(columns))}
    return next((plain[name] for name in names if name in plain), None)
