"""What a writer is: one small file a format, from request specs to lines of text.

A writer names the fields of `RequestSpec` that its format has (`fields`). Everything else a row gives is counted as
lost, field by field, and a row the format cannot hold at all is left out with a reason: nothing vanishes silently.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from traces.workload import RequestSpec

SECOND = 1_000_000_000
FIRST_ID = 1 << 40
"""Ids that are made here are above it, out of the way of those of files."""
Measure = Callable[[RequestSpec], int]
"""Tokens of a spec's text."""

_DEFAULTS = {
    each.name: each.default
    for each in dataclasses.fields(RequestSpec)
    if each.name not in ("id", "where", "arrival", "prefix_lens")
}
"""Fields that count as given when they differ from this. `prefix_lens` goes with `prefix_ids`."""


class Unwritable(Exception):
    """A row that the format cannot hold; the message is the reason, the same for all such rows."""


@dataclass(slots=True)
class Account:
    """What became of the rows."""

    written: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """Field to the number of rows that lose it."""
    changed: Counter[str] = field(default_factory=Counter)
    """What is written in another way, to its number of rows."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Reason to its number of rows."""

    def lines(self) -> list[str]:
        """For people."""
        return [
            *(f"{name}: {_rows(count)} lose{'s' * (count == 1)} it" for name, count in self.lost.most_common()),
            *(f"{what}: {_rows(count)}" for what, count in self.changed.most_common()),
            *(f"left out, {why}: {_rows(count)}" for why, count in self.left_out.most_common()),
        ]


def _rows(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


class Writer:
    """Base of all writers. One is made for one file: it may remember rows.

    start_ns: what the arrival 0 was in the source, for formats with absolute times. measure: counts the tokens of
    text; None: formats of lengths leave out rows that have text only.
    """

    name: ClassVar[str]
    """The reader's name where there is one: what is written can be read back."""
    title: ClassVar[str]
    fields: ClassVar[frozenset[str]] = frozenset()
    has_arrival: ClassVar[bool] = True
    resolution_ns: ClassVar[int] = 1
    """Arrivals are rounded to whole multiples of this."""
    has_id: ClassVar[bool] = False

    def __init__(self, start_ns: int = 0, measure: Measure | None = None) -> None:
        self.start_ns = start_ns
        self.measure = measure
        self.account = Account()
        self._made: dict[tuple[object, ...], int] = {}
        """Block after what block, filled with what, to its new id."""
        self._next = FIRST_ID
        self._others = tuple((name, value) for name, value in _DEFAULTS.items() if name not in self.fields)

    def header(self) -> str:
        """What comes before the first row, with its line end."""
        return ""

    def row(self, spec: RequestSpec) -> str:
        """The line of one row without its end. Raises Unwritable."""
        raise NotImplementedError

    def write(self, spec: RequestSpec) -> str | None:
        """The line of one row with its end; None when it is left out. Keeps the account."""
        try:
            text = self.row(spec)
        except Unwritable as why:
            self.account.left_out[str(why)] += 1
            return None
        account = self.account
        account.written += 1
        for name, default in self._others:
            if getattr(spec, name) != default:
                account.lost[name] += 1
        if not self.has_id and not spec.id.startswith("line-"):
            account.lost["id"] += 1
        if not self.has_arrival:
            if spec.arrival:
                account.lost["arrival"] += 1
        elif self.resolution_ns > 1 and self.at_ns(spec) % self.resolution_ns:
            account.changed[f"arrival rounded to {_step(self.resolution_ns)}"] += 1
        return text + "\n"

    # what writers are made of

    def at_ns(self, spec: RequestSpec) -> int:
        """Arrival in whole nanoseconds after the earliest one."""
        return round(spec.arrival * SECOND)

    def rounded_ns(self, spec: RequestSpec) -> int:
        step = self.resolution_ns
        return (self.at_ns(spec) + step // 2) // step * step

    def change(self, what: str) -> None:
        """Count a row of which something is written in another way."""
        self.account.changed[what] += 1

    def prompt_len(self, spec: RequestSpec) -> int:
        if spec.prompt_len is not None:
            return spec.prompt_len
        if spec.prompt_ids is not None:
            return len(spec.prompt_ids)
        if spec.prompt is None and spec.messages is None:
            if spec.failed:
                return 0
            raise Unwritable("no prompt length")
        if self.measure is None:
            raise Unwritable("text without a length (--model NAME counts its tokens)")
        return self.measure(spec)

    def output_len(self, spec: RequestSpec) -> int:
        """0 for a row that failed at its source: that is how formats of lengths tell it."""
        if spec.failed:
            return 0
        if spec.output_len is not None:
            return spec.output_len
        if spec.max_tokens is None:
            raise Unwritable("no output length")
        self.change("max_tokens written as the output length")
        return spec.max_tokens

    def blocks(self, spec: RequestSpec, size: int) -> list[int] | None:
        """Ids of all blocks of `size` tokens of the prompt; None when the row has no prefix ids.

        Those of the row itself where they are of that size and reach the prompt's end, else new ones: the same for
        the same beginning, and ids that nobody else has for what is the row's own.
        """
        ids, lens = spec.prefix_ids, spec.prefix_lens or (size,)
        if not ids:
            return None
        prompt = self.prompt_len(spec)
        if all(length == size for length in lens) and len(ids) == -(-prompt // size):
            return list(ids)
        self.change(f"prefix ids made anew, in blocks of {size} tokens")
        return self._reblocked(list(zip(ids, lens if len(lens) > 1 else lens * len(ids), strict=True)), prompt, size)

    def _reblocked(self, pieces: list[tuple[int, int]], prompt: int, size: int) -> list[int]:
        made: list[int] = []
        parts: list[tuple[int, int, int]] = []
        """Of the block that is being filled: (id, first token of it, number of tokens)."""
        room, left = size, prompt
        for id, length in pieces:
            start, end = 0, min(length, left)
            left -= end
            while start < end:
                take = min(end - start, room)
                parts.append((id, start, take))
                start, room = start + take, room - take
                if not room:
                    made.append(self._block((made[-1] if made else None, *parts)))
                    parts, room = [], size
        if parts and not left:
            made.append(self._block((made[-1] if made else None, *parts)))
        while len(made) * size < prompt:
            made.append(self._block(None))
        return made

    def _block(self, key: tuple[object, ...] | None) -> int:
        """The id of a block that has been made before, or a new one. None: one of its own."""
        if key is not None and key in self._made:
            return self._made[key]
        self._next += 1
        if key is not None:
            self._made[key] = self._next
        return self._next


LENGTHS = frozenset({"prompt_len", "output_len", "max_tokens", "failed"})
"""Fields that formats of two lengths have; `max_tokens` is told when it stands in for a length."""


def seconds(ns: int) -> str:
    """Nanoseconds as seconds with as many digits as are needed, at least one."""
    whole, part = divmod(ns, SECOND)
    return f"{whole}.{part:09d}".rstrip("0") if part else f"{whole}.0"


def json_line(row: dict[str, Any], separators: tuple[str, str] = (",", ":")) -> str:
    return json.dumps(row, ensure_ascii=False, separators=separators).translate(_LINE_ENDS)


_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}
"""Some tools take these for ends of lines, in the middle of a text."""


def _step(ns: int) -> str:
    return f"{ns / 1e9:g} s" if ns >= SECOND else f"{ns / 1e6:g} ms" if ns >= 1e6 else f"{ns:g} ns"
