"""The base of every panel: spans in, strips out.

A panel turns the scene into lines of (text, style) spans; `repaint` compares them with the last ones and marks only
the rows that differ. The frame is drawn here too, so that it costs no style sheet work and has an ASCII form.

Panels never see the engine: `set_view` takes a `Scene` of plain data.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, ClassVar

from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from engine.host import InFlight
from engine.view import EngineView
from workbench.glyphs import Look
from workbench.model.history import History
from workbench.text import fit, seconds, width_of

Span = tuple[str, Style]
Line = tuple[Span, ...]


@dataclass(slots=True)
class Scene:
    """All that the panels may show: made anew for each frame that differs."""

    history: History
    view: EngineView
    """The live state, or that after step `cursor`."""
    look: Look = field(default_factory=Look)
    cursor: int | None = None
    """The step looked back at, None: live."""
    selected: str | None = None
    ids: list[str] = field(default_factory=list)
    """Requests in the order of the timeline's rows."""
    per_column: int = 1
    now: float = 0.0
    changed: set[int] | None = None
    """Blocks that changed since the last scene; None: may be any."""
    fixed_right: int | None = None
    """Newest step the timeline shows, while it is held still for the cursor."""
    speed: tuple[float, float] = (0.0, 0.0)
    """Iterations and output tokens a second."""
    cost: str = ""
    """What the screen itself costs."""
    in_flight: InFlight | None = None
    """The iteration that runs, once it has run for LONG seconds."""
    pausing: bool = False
    """A pause was asked for and the running iteration has not ended yet."""
    building: bool = False
    """The engine is being built anew."""
    ended: bool = False
    """The engine has stopped or failed."""
    playing: str = ""
    """Of a recording: whether and how fast it plays."""
    virtual: bool = False
    """By a clock of made-up times."""
    recording: str = ""
    """That a recording is being made, and its size so far."""
    replayed: str = ""
    """How far a replay has come, and how long the rest will take."""

    @property
    def computing(self) -> str:
        """What a long iteration computes, and for how long it has."""
        flight = self.in_flight
        if flight is None:
            return ""
        return f"{flight.num_tokens} tok, {seconds(self.now - flight.since)}"

    @property
    def step(self) -> int:
        return self.history.last_step if self.cursor is None else self.cursor


class Panel(Widget, can_focus=True):
    """See the module; subclasses fill in `content` and `note`."""

    TITLE: ClassVar[str] = ""
    FRAMED: ClassVar[bool] = True
    ALLOW_SELECT = False

    def __init__(self, *, id: str | None = None, look: Look | None = None) -> None:
        super().__init__(id=id)
        self.look = look or Look()
        self.scene: Scene | None = None
        self.top = 0
        """First line shown, for panels that scroll."""
        self.showing = True
        """On the screen, as far as the layout is concerned."""
        self._lines: list[Line] = []
        self._painted = (0, 0)

    # ---- for the panels to fill in ----------------------------------------------------------------

    def content(self, width: int, height: int) -> list[Line]:
        """At most `height` lines of at most `width` cells."""
        return []

    def heading(self) -> str:
        return self.TITLE

    def note(self) -> str:
        """Right end of the title line."""
        return ""

    # ---- painting ---------------------------------------------------------------------------------

    def set_view(self, scene: Scene) -> None:
        self.scene = scene
        if scene.look is not self.look:  # equal lines may look different
            self.look, self._painted = scene.look, (0, 0)
        if self.showing:
            self.repaint()

    @property
    def framed(self) -> bool:
        return self.FRAMED and self.size.height >= 3 and self.size.width >= 4

    @property
    def inner(self) -> tuple[int, int]:
        """Cells inside the frame."""
        width, height = self.size
        return (width - 2, height - 2) if self.framed else (width, height)

    def repaint(self) -> None:
        """Make the lines anew and mark those that differ."""
        width, height = self.size
        if width <= 0 or height <= 0:
            return
        lines = self._compose_lines(width, height)
        if self._painted != (width, height) or len(lines) != len(self._lines):
            self._lines, self._painted = lines, (width, height)
            self.refresh()
            return
        old, self._lines = self._lines, lines
        changed = [y for y, (a, b) in enumerate(zip(old, lines, strict=True)) if a != b]
        regions = []
        for _, group in groupby(enumerate(changed), lambda pair: pair[1] - pair[0]):
            ys = [y for _, y in group]
            regions.append(Region(0, ys[0], width, len(ys)))
        if regions:
            self.refresh(*regions)

    def _compose_lines(self, width: int, height: int) -> list[Line]:
        if not self.framed:
            lines = self.content(width, height)[:height]
            return lines + [()] * (height - len(lines))
        lines = self.content(width - 2, height - 2)[: height - 2]
        lines += [()] * (height - 2 - len(lines))
        edge = (("│", self._frame_style),)
        framed = [self._title_line(width)]
        framed += [edge + pad(line, width - 2, self.look.text) + edge for line in lines]
        framed.append((("└" + "─" * (width - 2) + "┘", self._frame_style),))
        return framed

    @property
    def _frame_style(self) -> Style:
        return self.look.frame_focus if self.has_focus else self.look.frame

    def _title_line(self, width: int) -> Line:
        frame = self._frame_style
        title = f" {self.heading()} "
        note = self.note()
        room = width - 5 - len(title)
        note = f" {fit(note, min(width_of(note), room - 2))} " if note and room > 6 else ""
        fill = max(0, width - 3 - len(title) - width_of(note))
        title = title[: max(0, width - 3)]
        style = self.look.title_focus if self.has_focus else self.look.title
        return (("┌", frame), (title, style), ("─" * fill, frame), (note, self.look.muted), ("─┐", frame))

    def render_line(self, y: int) -> Strip:
        width, height = self.size
        if self._painted != (width, height):
            self._lines, self._painted = self._compose_lines(width, height), (width, height)
        if y >= len(self._lines):
            return Strip.blank(width, self.look.text)
        return self.strip(self._lines[y], width)

    def strip(self, line: Line, width: int) -> Strip:
        segment = self.look.segment
        return Strip([segment(text, style) for text, style in line if text]).adjust_cell_length(width, self.look.text)

    def restyle(self, look: Look) -> None:
        """Another mode or theme: nothing painted before counts."""
        self.look = look
        self._painted = (0, 0)
        self.refresh()

    def on_focus(self) -> None:
        # not now: Textual sets `has_focus` after this, and an idle engine brings no other reason to paint
        self.call_next(self.repaint)

    def on_blur(self) -> None:
        self.call_next(self.repaint)

    # ---- scrolling --------------------------------------------------------------------------------

    def scrolled(self, lines: list[Any], height: int) -> list[Any]:
        """The lines from `top` on; the last one tells how many are below."""
        self.top = max(0, min(self.top, len(lines) - height))
        shown = lines[self.top : self.top + height]
        below = len(lines) - self.top - height
        if below > 0 and height > 1:
            shown[-1] = ((f"… {below + 1} more", self.look.muted),)
        return shown

    def scroll_lines(self, lines: int) -> None:
        self.top = max(0, self.top + lines)
        self.repaint()

    def on_mouse_scroll_down(self) -> None:
        self.scroll_lines(1)

    def on_mouse_scroll_up(self) -> None:
        self.scroll_lines(-1)


def pad(line: Line, width: int, style: Style) -> Line:
    """A line cut or filled to exactly `width` cells."""
    used = sum(width_of(text) for text, _ in line)
    if used == width:
        return line
    if used < width:
        return (*line, (" " * (width - used), style))
    out: list[Span] = []
    left = width
    for text, span_style in line:
        cells = width_of(text)
        if cells >= left:
            out.append((fit(text, left), span_style))
            break
        out.append((text, span_style))
        left -= cells
    return tuple(out)
