"""Any CSV that names its columns as people do: a prompt length, an output length, perhaps a time and who asked.

Times that are numbers are taken in the unit their column says (`arrival_ms`, `t_ns`), else in seconds, and that is
told: `--time-unit` says another. Header-less files get their names with `--columns`.
"""

from __future__ import annotations

from traces.readers.base import MAYBE, NO, Container, Context, Head, Reader
from traces.readers.table import Table
from traces.readers.times import UNITS

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


class GenericCsv(Reader):
    name = "csv"
    title = "CSV with columns for prompt and output lengths, and perhaps times, clients, sessions"
    unit = "s"
    containers = (Container.CSV,)

    def sniff(self, head: Head) -> int:
        return MAYBE if _column(head, _PROMPTS) and _column(head, _OUTPUTS) else NO

    def table(self, head: Head, context: Context) -> Table:
        time, unit = _time(head)
        if time and not unit and context.options.time_unit is None:
            context.note(f"{time!r} does not say its unit: numbers are taken as seconds (--time-unit says another)")
        texts = tuple((column, name) for name, names in _TEXTS.items() if (column := _column(head, names)))
        prompt, output = _column(head, _PROMPTS), _column(head, _OUTPUTS)
        return Table(prompt or _PROMPTS[0], output or _OUTPUTS[0], time, unit or "s", texts)


def _time(head: Head) -> tuple[str, str]:
    """(column, the unit its name ends with); "" where there is none."""
    if column := _column(head, _TIMES):
        return column, ""
    for unit in UNITS:
        if column := _column(head, tuple(f"{name}_{unit}" for name in _TIMES)):
            return column, unit
    return "", ""


def _column(head: Head, names: tuple[str, ...]) -> str | None:
    plain = {name.lower().replace(" ", "_").replace("-", "_"): name for name in reversed(head.columns)}
    return next((plain[name] for name in names if name in plain), None)
