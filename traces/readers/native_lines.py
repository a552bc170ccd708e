"""Blocks of native rows as programs write them: lengths, times, names and prefix ids, without texts.

One typed decoding of a block and a few comparisons of whole columns take the place of Python for each field.

Invariant: a block is either exactly what `Native.parse` makes of each row, or left to it as a whole.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from traces.readers.jsonlines import Columns
from traces.readers.native import BLOCK, FIELDS, MOST_RANDOM, MOST_TOKENS, YEAR
from traces.readers.times import UNITS, to_ns
from traces.rows import NO_TIME, UNKNOWN, Ints

_Name = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
_NAMES = ("id", "client", "session", "after")
_KINDS: dict[str, Any] = {
    "prompt_len": Annotated[int, msgspec.Meta(ge=1, le=MOST_RANDOM)],
    "output_len": Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)],
    "arrival": Annotated[float, msgspec.Meta(ge=0, le=YEAR)],
    "t_ns": Annotated[int, msgspec.Meta(ge=0, le=YEAR * 10**9)],
    **dict.fromkeys(_NAMES, _Name),
    "priority": Annotated[int, msgspec.Meta(ge=-(1 << 31), lt=1 << 31)],
    "deadline": Annotated[float, msgspec.Meta(gt=0, le=YEAR)],
    "turn": Annotated[int, msgspec.Meta(ge=0, le=MOST_TOKENS)],
    "delay": Annotated[float, msgspec.Meta(ge=0, le=YEAR)],
    "prefix_ids": Annotated[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], msgspec.Meta(min_length=1)],
    "prefix_lens": Annotated[int, msgspec.Meta(ge=1, le=MOST_TOKENS)],
}
assert _KINDS.keys() <= FIELDS.keys()
_COLUMNS = ("prompt_len", "output_len", "arrival", "t_ns")
"""Those that are not in a row's `more`."""


class NativeLines:
    """See `jsonlines.JsonLines`, whose place it takes."""

    def __init__(self) -> None:
        fields = [(name, kind | None, None) for name, kind in _KINDS.items()]
        row = msgspec.defstruct("row", fields, gc=False, forbid_unknown_fields=True)
        self._decode = msgspec.json.Decoder(row).decode_lines

    def columns(self, raw: bytes, unit: str) -> Columns | None:
        try:
            rows = self._decode(raw)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return None
        if not rows or len(rows) != raw.count(b"\n") + (not raw.endswith(b"\n")) or _oddly_spaced(raw):
            return None
        # Each name ends with `":`, which else stands in texts only: as many as values, and none was given twice.
        names = raw.count(b'":')
        found, given = _columns(rows, [name for name in _KINDS if getattr(rows[0], name) is not None])
        if given != names:
            found, given = _columns(rows, [name for name in _KINDS if f'"{name}"'.encode() in raw])
        if given != names or None in found.get("prompt_len", (None,)):
            return None
        if not (raw.isascii() and b"\\" not in raw) and any(
            name is not None and not name.strip() for column in _NAMES for name in found.get(column, ())
        ):
            return None  # a name of blanks only; those of plain spaces are oddly spaced
        prompt_len = np.array(found["prompt_len"], np.int64)
        output_len = np.array([value or UNKNOWN for value in found.get("output_len", ())], np.int64)
        times = _times(found, len(rows), unit)
        if times is None or not _fits(found, prompt_len) or not _follows(found):
            return None
        more = _more({name: column for name, column in found.items() if name not in _COLUMNS}, len(rows))
        output = output_len if len(output_len) else np.full(len(rows), UNKNOWN)
        return Columns(times, prompt_len, output, more, np.ones(len(rows), np.bool_))


def _oddly_spaced(raw: bytes) -> bool:
    """Whether a quote is followed by space: of a name, the colon could come later."""
    return b'" ' in raw or (b"\t" in raw and b'"\t' in raw) or (b"\r" in raw and b'"\r' in raw)


def _columns(rows: list[Any], names: list[str]) -> tuple[dict[str, list[Any]], int]:
    """(name to its values, how many are given)."""
    found = {name: [*map(attrgetter(name), rows)] for name in names}
    return found, len(rows) * len(names) - sum(column.count(None) for column in found.values())


def _times(found: dict[str, list[Any]], rows: int, unit: str) -> Ints | None:
    """Nanoseconds; None when a row may have two times."""
    arrival, t_ns = found.get("arrival"), found.get("t_ns")
    if arrival and t_ns:
        return None
    if t_ns:
        return np.array([NO_TIME if value is None else value for value in t_ns], np.int64)
    if not arrival:
        return np.full(rows, NO_TIME)
    values = np.array(arrival, np.float64)  # None becomes nan
    given = ~np.isnan(values)
    return np.where(given, _to_ns(np.where(given, values, 0.0), unit), NO_TIME)


def _to_ns(values: npt.NDArray[np.float64], unit: str) -> Ints:
    """As `times.to_ns`, which goes by the decimal that was written.

    A float is within half a unit in its last place of its decimal, and so is the product: together less than 2^-51 of
    it. Only where a tie is as near as that can the two be rounded apart.
    """
    product = values * UNITS[unit]
    off = np.abs(product - np.floor(product) - 0.5)
    near = np.flatnonzero(off <= product * 2.0**-51)
    product[near] = 0
    ns = np.rint(product).astype(np.int64)
    ns[near] = [to_ns(value, unit) for value in values[near].tolist()]
    return ns


def _fits(found: dict[str, list[Any]], prompt_len: Ints) -> bool:
    """Whether no row has prefix ids beyond the end of its prompt, or lengths of ids without ids; fills in lengths."""
    lists = found.get("prefix_ids")
    sizes = found.pop("prefix_lens", None)
    if lists is None:
        return sizes is None or not any(sizes)
    sizes = sizes or [None] * len(lists)
    if any(ids is None and size is not None for ids, size in zip(lists, sizes, strict=True)):
        return False
    if max((max(ids) for ids in lists if ids is not None), default=0) >= 1 << 64:
        return False
    count = np.array([0 if ids is None else len(ids) for ids in lists], np.int64)
    size = np.array([value or BLOCK for value in sizes], np.int64)
    shown = {value: (value,) for value in set(size.tolist())}
    found["prefix_lens"] = [
        None if ids is None else shown[value] for ids, value in zip(lists, size.tolist(), strict=True)
    ]
    return bool((count <= -(-prompt_len // size)).all())


def _follows(found: dict[str, list[Any]]) -> bool:
    """Whether every delay has something to count from."""
    delays, after = found.get("delay"), found.get("after")
    if delays is None:
        return True
    return after is not None and not any(
        delay is not None and before is None for delay, before in zip(delays, after, strict=True)
    )


def _more(columns: dict[str, list[Any]], rows: int) -> list[dict[str, Any]]:
    if not columns:
        return [{} for _ in range(rows)]
    names, values = tuple(columns), tuple(columns.values())
    if any(None in column for column in values):
        return [
            {name: value for name, value in zip(names, row, strict=True) if value is not None}
            for row in zip(*values, strict=True)
        ]
    if len(names) == 1:
        (name,) = names
        return [{name: value} for value in values[0]]
    if len(names) == 2:
        one, two = names
        return [{one: a, two: b} for a, b in zip(*values, strict=True)]
    return [dict(zip(names, row)) for row in zip(*values, strict=True)]  # noqa: B905 (a keyword takes half as long again)
