"""What states look like: the one table of glyphs, colours and attributes.

A glyph says what, a letter says who, colour repeats both: with the colour covered the screen must still read, so no
two states of a panel share glyph and attributes. The data colours are fixed (on their own dark ground) and differ
for colour-blind eyes too; only the chrome follows the theme.

A `Look` is the table made ready for one mode. In ASCII mode every other character is replaced while a line is drawn,
so the panels write one set of characters only.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.theme import Theme

from workbench.model.cells import Cell
from workbench.model.letters import colour_of


class Mode(StrEnum):
    COLOUR = "colour"
    MONO = "mono"
    ASCII = "ascii"


class Glyph(NamedTuple):
    panel: str
    """States of the same panel must differ without colour."""
    name: str
    char: str
    ascii: str
    colour: str
    ansi: str
    """For terminals with 16 colours."""
    attributes: str = ""


GROUND = "#101418"
_GREY, _LIGHT = "#6B7680", "#B9C0C8"
GLYPHS: tuple[Glyph, ...] = (
    Glyph("timeline", "blank", " ", " ", _GREY, "bright_black"),
    Glyph("timeline", "waiting", "·", ".", _GREY, "bright_black"),
    Glyph("timeline", "swapped", ":", ":", _LIGHT, "white"),
    Glyph("timeline", "slot held", "□", "o", _GREY, "bright_black"),
    Glyph("timeline", "decode", "─", "-", "#56B4E9", "bright_cyan"),
    Glyph("timeline", "prefill ¼", "░", "1", "#E69F00", "yellow", "bold"),
    Glyph("timeline", "prefill ½", "▒", "2", "#E69F00", "yellow", "bold"),
    Glyph("timeline", "prefill ¾", "▓", "3", "#E69F00", "yellow", "bold"),
    Glyph("timeline", "prefill 1", "█", "4", "#E69F00", "yellow", "bold"),
    Glyph("timeline", "recompute", "▚", "R", "#CC79A7", "bright_magenta", "underline"),
    Glyph("timeline", "swap in", "△", "^", _LIGHT, "white", "underline"),
    Glyph("timeline", "swap out", "▽", "v", _LIGHT, "white", "underline"),
    Glyph("timeline", "preempted", "×", "x", "#F0E442", "bright_yellow", "reverse"),
    Glyph("timeline", "finished", "◆", "$", _LIGHT, "white", "bold"),
    Glyph("timeline", "cut short", "◐", "c", "#E69F00", "yellow", "bold"),
    Glyph("timeline", "aborted", "◇", "a", "#D55E00", "bright_red", "reverse"),
    Glyph("kv", "free", "·", ".", _GREY, "bright_black"),
    Glyph("kv", "cached", "+", "+", _LIGHT, "white"),
    Glyph("kv", "off", "/", "/", _GREY, "bright_black"),
    Glyph("kv", "null", "■", "*", _GREY, "bright_black"),
    Glyph("kv", "unlettered", "#", "#", _LIGHT, "white"),
    Glyph("budget", "decode", "▒", "-", "#56B4E9", "bright_cyan"),
    Glyph("budget", "prefill", "█", "#", "#E69F00", "yellow", "bold"),
    Glyph("budget", "recompute", "▚", "R", "#CC79A7", "bright_magenta", "underline"),
    Glyph("budget", "unused", "·", ".", _GREY, "bright_black"),
    Glyph("marks", "preemption", "×", "x", "#F0E442", "bright_yellow", "reverse"),
    Glyph("marks", "knob", "!", "!", "#F0E442", "bright_yellow", "reverse"),
    Glyph("marks", "bookmark", "◈", "b", _LIGHT, "bright_white", "reverse"),
    Glyph("marks", "cursor", "▼", "v", _LIGHT, "white", "bold"),
    Glyph("marks", "step", "·", ".", _GREY, "bright_black"),
    Glyph("marks", "window", "█", "#", _LIGHT, "white"),
)
CELLS = tuple(glyph for glyph in GLYPHS if glyph.panel == "timeline")
"""Indexed by Cell."""
assert len(CELLS) == len(Cell)
BY_NAME = {(glyph.panel, glyph.name): glyph for glyph in GLYPHS}

OWNERS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#3D7DD8", "#B9C0C8")
OWNERS_ANSI = ("cyan", "yellow", "green", "bright_yellow", "magenta", "red", "blue", "white")

# Every character the panels use outside ASCII, for terminals and fonts that have nothing else.
_CHROME = {
    **dict.fromkeys("┌┐└┘├┤", "+"), "─": "-", "│": "|", "▸": ">", "‖": "=", "…": "~", "→": ">", "←": "<", "↵": "$",
    "⇥": " ", "‹": "<", "›": ">", "▲": "^", "▼": "v", "±": "~", "≤": "<", "↑": "^", "↓": "v", "■": "*",
    "▁": ".", "▂": ":", "▃": ":", "▄": "=", "▅": "=", "▆": "#", "▇": "#", "\N{REPLACEMENT CHARACTER}": "?",
    "¼": "1", "½": "2", "¾": "3", "✓": "y", "✗": "n", "═": "=",
}  # fmt: skip
_TO_ASCII = str.maketrans(_CHROME | {glyph.char: glyph.ascii for glyph in CELLS if glyph.char != " "})

_ANSI = {
    "ansi": True,
    "secondary": "ansi_default",
    "warning": "ansi_yellow",
    "error": "ansi_red",
    "success": "ansi_green",
    **dict.fromkeys(("foreground", "background", "surface", "panel", "boost"), "ansi_default"),
    "variables": {
        "ansi-background": "ansi_black",
        "ansi-foreground": "ansi_white",
        "border-blurred": "ansi_white",
        "input-cursor-background": "ansi_white",
        "input-cursor-foreground": "ansi_black",
        "input-cursor-text-style": "reverse",
        "block-cursor-text-style": "reverse",
    },
}
THEMES = (
    Theme(
        "workbench-dark",
        primary="#56B4E9",
        secondary="#3D7DD8",
        accent="#F0E442",
        warning="#E69F00",
        error="#D55E00",
        success="#009E73",
        foreground="#D5DAE0",
        background=GROUND,
        surface="#1A2027",
        panel="#242C35",
    ),
    Theme(
        "workbench-light",
        primary="#0F5E99",
        secondary="#2A4E8F",
        accent="#8A4B00",
        warning="#8A4B00",
        error="#A83200",
        success="#00604A",
        foreground="#20262C",
        background="#F4F5F6",
        surface="#E8EAEC",
        panel="#DADDE0",
        dark=False,
    ),
    Theme("workbench-mono", primary="ansi_default", accent="ansi_default", **_ANSI),  # type: ignore[arg-type]
    Theme("workbench-16", primary="ansi_cyan", accent="ansi_yellow", **_ANSI),  # type: ignore[arg-type]
)


class Look:
    """Styles for one mode and theme. Compared by identity; make a new one when either changes."""

    def __init__(
        self, mode: Mode = Mode.COLOUR, theme: Theme | None = None, *, background: str = GROUND, no_color: bool = False
    ) -> None:
        self.mode = mode
        self.background = background
        self.ascii = mode is Mode.ASCII
        self.colours = 0 if no_color or mode is Mode.MONO else 16 if theme is not None and theme.ansi else 256
        theme = theme or THEMES[0]
        self.text = self._chrome(theme.foreground or "#D5DAE0", "default")
        self.muted = self._chrome("#8A949E" if theme.dark else "#59626B", "bright_black")
        self.strong = self.text + Style(bold=True)
        self.title = self._chrome(theme.primary, "cyan") + Style(bold=True)
        self.frame = self._chrome("#4A545E" if theme.dark else "#9AA3AB", "bright_black")
        self.frame_focus = self._chrome(theme.accent or theme.primary, "bright_yellow") + Style(bold=True)
        self.title_focus = self.frame_focus + Style(reverse=True)
        self.warn = self._chrome(theme.warning or "#E69F00", "yellow") + Style(bold=True)
        self.error = self._chrome(theme.error or "#D55E00", "bright_red") + Style(bold=True)
        self.selected = self.text + Style(bold=True, reverse=True)
        self.key = self._chrome(theme.accent or theme.primary, "bright_yellow") + Style(bold=True)
        self.ground = self._data(_GREY, "bright_black")
        self.cells = tuple(self._glyph(glyph) for glyph in CELLS)
        self._others = {key: self._glyph(glyph) for key, glyph in BY_NAME.items()}
        self.segment = lru_cache(maxsize=8192)(self._segment)
        self.owner = lru_cache(maxsize=1024)(self._owner)

    def _chrome(self, colour: str, ansi: str) -> Style:
        if self.colours == 0:
            return Style(bold=False)
        return Style(color=ansi) if self.colours == 16 else Style(color=colour, bgcolor=self.background)

    def _data(self, colour: str, ansi: str) -> Style:
        if self.colours == 0:
            return Style(bold=False)
        return Style(color=ansi) if self.colours == 16 else Style(color=colour, bgcolor=GROUND)

    def _glyph(self, glyph: Glyph) -> Style:
        attributes = dict.fromkeys(glyph.attributes.split(), True)
        return self._data(glyph.colour, glyph.ansi) + Style(**attributes)  # type: ignore[arg-type]

    def _owner(self, letter: str, shared: bool = False, written: bool = False) -> Style:
        index = colour_of(letter)
        attributes = Style(underline=shared or None, bold=written or None)
        if index < 0:
            return self._others["kv", "unlettered"] + attributes
        if self.colours == 0:
            return Style(bold=False) + attributes
        if self.colours == 16:
            return Style(color="black", bgcolor=OWNERS_ANSI[index % 8]) + attributes
        return Style(color=GROUND, bgcolor=OWNERS[index % 8]) + attributes

    def plain(self, text: str) -> str:
        """Text as this mode can show it, for what Textual draws."""
        return text.translate(_TO_ASCII) if self.ascii else text

    def named(self, panel: str, name: str) -> tuple[str, Style]:
        """Glyph and style of a state outside the timeline."""
        glyph = BY_NAME[panel, name]
        return glyph.ascii if self.ascii else glyph.char, self._others[panel, name]

    def _segment(self, text: str, style: Style) -> Segment:
        return Segment(self.plain(text), style)
