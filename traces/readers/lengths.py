"""Lengths in tokens and what they may be, and which prefix ids a prompt of a length needs."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from traces.rows import Drop, ReadOptions

MOST_TOKENS = 1 << 24
"""Above any context there is: a larger length is a mistake (a time in the wrong column, a hash)."""
SHORT_IDS = "fewer prefix ids than the prompt needs"
_WHOLE = re.compile(r"\d{1,18}(\.0*)?", re.ASCII)


def to_length(name: str, value: Any) -> int:
    """0..MOST_TOKENS, from 5, 5.0, "5" or "5.0". Raises Drop that names the field."""
    if type(value) is int and 0 <= value <= MOST_TOKENS:
        return value
    if isinstance(value, str):
        text = value.strip()
        if not text:
            raise Drop(f"no {name}")
        if _WHOLE.fullmatch(text):
            return _checked(name, int(text.partition(".")[0]))
        try:
            value = float(text) if len(text) <= 64 and text.isascii() and "_" not in text else None
        except ValueError:
            value = None
        if value is None:
            raise Drop(f"bad {name}", f"{name} {_short(text)} is not a number")
    if value is None:
        raise Drop(f"no {name}")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Drop(f"bad {name}", f"{name} {_short(value)} is not a number")
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Drop(f"bad {name}", f"{name} {value} is not a finite number")
        if value != math.floor(value):
            raise Drop(f"bad {name}", f"{name} {value:g} is not a whole number")
        value = int(value)
    return _checked(name, value)


def covered(
    prompt_len: int, ids: Sequence[int], block: int, options: ReadOptions
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """(the ids that a prompt of this length begins with, reasons for which the row counts as clamped).

    Blocks of `block` tokens each have to reach to the prompt's end: a row with fewer is dropped, unless
    `options.short_ids` is `tail`, which makes the rest private. Ids beyond the end are left out.
    """
    needed = -(-prompt_len // block)
    if len(ids) < needed:
        if options.short_ids != "tail":
            detail = (
                f"{len(ids)} ids of {block} tokens do not reach {prompt_len} (--short-ids tail makes the rest private)"
            )
            raise Drop(SHORT_IDS, detail)
        return tuple(ids), ("prompt's tail without prefix ids",)
    if len(ids) > needed:
        return tuple(ids[:needed]), ("more prefix ids than the prompt holds",)
    return tuple(ids), ()


def _checked(name: str, value: int) -> int:
    if value < 0:
        raise Drop(f"bad {name}", f"{name} {_short(value)} is negative")
    if value > MOST_TOKENS:
        raise Drop(f"bad {name}", f"{name} {_short(value)} is above {MOST_TOKENS:,}")
    return value


def _short(value: Any) -> str:
    if isinstance(value, int) and abs(value) >= 10**40:
        return "with more than 40 digits"
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
