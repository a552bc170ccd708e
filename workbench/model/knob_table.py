"""What the knobs panel lists: the engine's knobs, the pace, and what else an engine is built of."""

from __future__ import annotations

from typing import Any

from engine.errors import ConfigError
from engine.knobs import KNOBS, Knob, KnobValue, check_value

PACE = "pace"
"""Not a knob of the engine's table, but turned like one."""
BUILD: dict[str, Knob] = {
    "dtype": Knob("dtype", str, "auto", "Number type of weights and KV.", choices=("bfloat16", "float32")),
    "model": Knob("model", str, "", "The model, as --model takes it.", hint="NAME, folder or .gguf file"),
}
ROWS: dict[str, Knob] = {**KNOBS, **BUILD}
NAMES = (
    *(name for name, knob in KNOBS.items() if knob.live),
    PACE,
    *(name for name, knob in ROWS.items() if not knob.live),
)
FASTEST = 1e6


def check(name: str, text: Any) -> KnobValue:
    """What was typed as a value of the row, or ConfigError."""
    if name == PACE:
        return _read_pace(str(text))
    if name not in BUILD:
        return check_value(name, text)
    value = str(text).strip()
    choices = BUILD[name].choices
    if not value or (choices and value not in choices):
        raise ConfigError(name, f"{value!r} is not one of {', '.join(choices)}" if choices else "needs a value")
    return value


def _read_pace(text: str) -> float | None:
    word = text.strip().lower()
    if word in ("", "max", "none"):
        return None
    try:
        pace = float(word)
    except ValueError:
        pace = 0.0
    if not 0.01 <= pace <= FASTEST:
        raise ConfigError(PACE, f"{text.strip()!r} is not iterations a second: a number from 0.01, or max")
    return pace


def needs_build(name: str, value: KnobValue, allocated: int) -> bool:
    """Whether the engine must be built anew for a value; `allocated` is the size of its pool."""
    if name == PACE:
        return False
    if name == "num_blocks":
        return isinstance(value, int) and value > allocated
    return not ROWS[name].live


def is_text(name: str) -> bool:
    """Rows without steps: only typing changes them."""
    return name in ROWS and ROWS[name].type is str and not ROWS[name].choices
