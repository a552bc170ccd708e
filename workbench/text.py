"""Text of users and models, made fit for a screen.

Everything on the screen that somebody else wrote goes through `clean` (or `wrap`, which calls it). What comes out
holds no control code, no bidirectional override and no lone surrogate, so nothing in it can act on the terminal;
widths are those of `rich.cells`. Nothing here knows markup: a square bracket is a square bracket.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len, set_cell_size

UNSHOWN = "\N{REPLACEMENT CHARACTER}"
"""Stands for every code that has no picture of its own."""
NEWLINE = "↵"
TAB = "⇥"
ELLIPSIS = "…"
_BREAKS = {0x0A: NEWLINE, 0x85: NEWLINE, 0x2028: NEWLINE, 0x2029: NEWLINE, 0x09: TAB, 0x7F: "␡"}


class _Pictures(dict[int, str]):
    """What each code point is shown as, found out when first met."""

    def __missing__(self, code: int) -> str:
        self[code] = shown = _picture(code)
        return shown


def _picture(code: int) -> str:
    if code in _BREAKS:
        return _BREAKS[code]
    if code < 0x20:
        return chr(0x2400 + code)
    if 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
        return ""  # variation selectors: terminals disagree about the width they give
    if unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Cn"):
        return UNSHOWN
    return chr(code)


_PICTURES = _Pictures()
_SURROGATES = dict.fromkeys(range(0xD800, 0xE000), UNSHOWN)


def clean(text: str) -> str:
    """`text` as one line of printable characters, each hidden one replaced by a visible stand-in."""
    if text.isascii() and text.isprintable():
        return text
    return text.translate(_PICTURES)


def faithful(text: str) -> str:
    """Typed or pasted text as it goes to the model: line breaks of every system as one, no lone surrogates."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text if text.isascii() else text.translate(_SURROGATES)


def fit_name(text: str, width: int) -> str:
    """`fit` for names, which often differ in their last letters: too long ones are cut in the middle."""
    if width < 5 or width_of(text) <= width or not text.isascii():
        return fit(text, width)
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}{ELLIPSIS}{text[len(text) - end :]}"


def fit(text: str, width: int, align: str = "<") -> str:
    """`text` cut with an ellipsis or padded to exactly `width` cells. Clean it first."""
    if width <= 0:
        return ""
    length = len(text) if text.isascii() else cell_len(text)
    if length > width:
        return set_cell_size(text, width - 1) + ELLIPSIS if width > 1 else ELLIPSIS
    pad = " " * (width - length)
    return pad + text if align == ">" else text + pad


def short(id: str, width: int = 8) -> str:
    """An id in at most `width` cells: its end tells most."""
    text = clean(id)
    if width_of(text) <= width:
        return text
    text = text[1 - width :]
    while width_of(text) > width - 1:
        text = text[1:]
    return ELLIPSIS + text


def width_of(text: str) -> int:
    return len(text) if text.isascii() else cell_len(text)


def wrap(text: str, width: int, limit: int | None = None) -> list[str]:
    """Lines of at most `width` cells; breaks at newlines, then at spaces, then anywhere. At most `limit` lines."""
    lines: list[str] = []
    for part in text.replace("\r\n", "\n").split("\n"):
        lines.extend(_wrap_line(clean(part), max(1, width)))
        if limit is not None and len(lines) >= limit:
            return lines[:limit]
    return lines


def _wrap_line(text: str, width: int) -> list[str]:
    lines: list[str] = []
    while width_of(text) > width:
        end, cells = 0, 0
        while end < len(text):
            cells += cell_len(text[end])
            if cells > width:
                break
            end += 1
        end = max(end, 1)
        space = text.rfind(" ", 0, end + 1)
        if space > width // 2:
            lines.append(text[:space])
            text = text[space + 1 :]
        else:
            lines.append(text[:end])
            text = text[end:]
    lines.append(text)
    return lines


@lru_cache(maxsize=1024)
def seconds(value: float | None) -> str:
    """A duration in at most six cells: 640us, 61ms, 1.31s, 12.5s, 312s."""
    if value is None:
        return "-"
    if value < 0.001:
        return f"{value * 1e6:.0f}us"
    if value < 0.9995:
        return f"{value * 1e3:.0f}ms"
    if value < 9.995:
        return f"{value:.2f}s"
    if value < 99.95:
        return f"{value:.1f}s"
    return f"{value:.0f}s"


def rate(value: float) -> str:
    """Things a second, in few cells."""
    return f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
