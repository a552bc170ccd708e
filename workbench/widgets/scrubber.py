"""The track of all steps that can be seen again: marks, window, cursor. Click to go there."""

from __future__ import annotations

from itertools import groupby
from math import ceil

import numpy as np
from rich.style import Style
from textual import events
from textual.message import Message

from traces.recording.marks import Mark
from workbench.text import width_of
from workbench.widgets.panel import Line, Panel, Scene, Span

LEFT = " |< < ["
RIGHT = "] > >|  "


class Scrubber(Panel, can_focus=False):
    FRAMED = False

    class Seek(Message):
        def __init__(self, step: int | None) -> None:
            self.step = step
            """None: back to live."""
            super().__init__()

    class Nudge(Message):
        def __init__(self, steps: int) -> None:
            self.steps = steps
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.window = (0, 0)
        """Steps the timeline shows: first, one past the last."""
        self._track = (0, 1, 1)

    def content(self, width: int, height: int) -> list[Line]:
        scene = self.scene
        if scene is None:
            return []
        where = "LIVE" if scene.cursor is None else f"@{scene.cursor}"
        right = f"{where}  {scene.cost} "
        columns = max(4, width - len(LEFT) - len(RIGHT) - width_of(right))
        first, last = scene.history.first_step, scene.history.last_step
        # one column stands for at least one step, so that a young history does not look like a full one
        per_column = max(1.0, (last - first + 1) / columns)
        self._track = (first, last, columns)
        look = self.look
        style = look.strong if scene.cursor is None else look.warn
        return [
            (
                (LEFT, look.muted),
                *self._marks(scene, first, last, columns, per_column),
                (RIGHT, look.muted),
                (where, style),
                (f"  {scene.cost} ", look.muted),
            )
        ]

    def _marks(self, scene: Scene, first: int, last: int, columns: int, per_column: float) -> list[Span]:
        history, look = scene.history, self.look
        names = ["step"] * columns
        used = min(columns, int((last - first) / per_column) + 1)
        for x in range(used, columns):
            names[x] = ""
        start, stop = self.window
        begin = max(0, int((start - first) / per_column))
        window = range(begin, min(used, max(begin + 1, ceil((stop - first) / per_column))))
        for x in window:
            names[x] = "window"
        marks = history.marks_between(first, last + 1)
        for name, bit in (("preemption", Mark.PREEMPTION), ("knob", Mark.KNOB)):
            for x in np.unique((np.flatnonzero(marks & bit) / per_column).astype(int)):
                names[min(columns - 1, x)] = name
        for step in history.bookmarks:
            if first <= step <= last:
                names[min(columns - 1, int((step - first) / per_column))] = "bookmark"
        if scene.cursor is not None:
            names[max(0, min(columns - 1, int((scene.cursor - first) / per_column)))] = "cursor"
        spans: list[Span] = []
        ground = look.named("marks", "window")[1] + Style(reverse=True, bold=True, underline=True)
        for (name, inside), group in groupby(enumerate(names), lambda pair: (pair[1], pair[0] in window)):
            char, style = look.named("marks", name) if name else (" ", look.text)
            # a mark in the window is cut out of its block, else many marks would hide it
            marked = inside and name in ("knob", "preemption", "bookmark")
            spans.append((char * len(list(group)), ground if marked else style))
        return spans

    def on_click(self, event: events.Click) -> None:
        first, last, columns = self._track
        x = event.x - len(LEFT)
        per_column = max(1.0, (last - first + 1) / columns)
        if 0 <= x < columns:
            self.post_message(self.Seek(min(last, first + int(x * per_column))))
        elif event.x in (1, 2):
            self.post_message(self.Seek(first))
        elif event.x == 4:
            self.post_message(self.Nudge(-1))
        elif x == columns + 2:
            self.post_message(self.Nudge(1))
        elif x in (columns + 4, columns + 5):
            self.post_message(self.Seek(None))
