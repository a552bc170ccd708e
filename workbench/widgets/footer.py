"""The last line: the keys that matter here, and clickable. The rest is behind `?`."""

from __future__ import annotations

from textual import events
from textual.message import Message

from workbench.text import width_of
from workbench.widgets.panel import Line, Panel, Span

Entry = tuple[str, str, str]
"""Key as shown, word, action."""

LIVE: tuple[Entry, ...] = (
    ("space", "Pause", "pause"),
    ("n", "Step", "steps(1)"),
    ("i", "Inject", "inject"),
    ("k", "Knobs", "focus_knobs"),
    ("tab", "Panel", "next_panel(1)"),
    ("?", "Help", "help"),
    ("^p", "Palette", "app.command_palette"),
    ("q", "Quit", "app.quit"),
)
WIDE: tuple[Entry, ...] = (
    *LIVE[:4],
    ("a", "Abort", "abort"),
    ("enter", "Inspect", "inspect"),
    (", .", "Back", "cursor(-1)"),
    *LIVE[4:],
)
PAST: tuple[Entry, ...] = (
    (",", "Back", "cursor(-1)"),
    (".", "Forth", "cursor(1)"),
    ("( )", "Jump", "mark(-1)"),
    ("end", "Live", "live"),
    ("space", "Pause", "pause"),
    ("n", "Step", "steps(1)"),
    ("?", "Help", "help"),
    ("q", "Quit", "app.quit"),
)
RECORDED: tuple[Entry, ...] = (
    ("space", "Play", "pause"),
    (",", "Back", "cursor(-1)"),
    (".", "Forth", "cursor(1)"),
    ("( )", "Jump", "mark(1)"),
    ("j", "Jump to", "jump_kind"),
    ("t", "Step", "go_to"),
    ("?", "Help", "help"),
    ("q", "Quit", "app.quit"),
)
PLAYING: tuple[Entry, ...] = (
    ("space", "Stop", "pause"),
    ("+ -", "Speed", "pace(1)"),
    *RECORDED[1:],
)
KNOBS: tuple[Entry, ...] = (
    ("↑↓", "Knob", "knob('choose', 1)"),
    ("[ ]", "Change", "knob('turn', 1)"),
    ("e", "Type", "knob('type', 0)"),
    ("enter", "Apply", "knob('apply', 0)"),
    ("esc", "Back", "knob('take_back', 0)"),
    ("u", "Undo", "undo_knob"),
    ("?", "Help", "help"),
    ("q", "Quit", "app.quit"),
)
FORM: tuple[Entry, ...] = (
    ("tab", "Next field", "app.focus_next"),
    ("enter", "Send", "send_form"),
    ("esc", "Close, keeps the values", "close_form"),
)
READING: tuple[Entry, ...] = (
    ("↑↓", "Scroll", ""),
    ("esc", "Close", ""),
    ("g", "Glyphs", ""),
    ("s", "Screenshot", ""),
)
INSPECTING: tuple[Entry, ...] = (READING[0], ("end", "Follow", ""), *READING[1:])
FAULT: tuple[Entry, ...] = (READING[0], ("esc", "Look at the screen", ""), *READING[2:], ("q", "Quit", ""))
ASKING: tuple[Entry, ...] = (("enter", "Go", ""), ("esc", "Close", ""))
CONFIRMING: tuple[Entry, ...] = (("enter", "Yes", ""), ("esc", "No", ""))
PALETTE: tuple[Entry, ...] = (("↑↓", "Choose", ""), ("enter", "Do it", ""), ("esc", "Close", ""))


class Keys(Panel, can_focus=False):
    FRAMED = False

    class Pressed(Message):
        def __init__(self, action: str) -> None:
            self.action = action
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.entries: tuple[Entry, ...] = LIVE
        self._spots: list[tuple[int, int, str]] = []

    def offer(self, entries: tuple[Entry, ...]) -> None:
        if entries != self.entries:
            self.entries = entries
            self.repaint()

    def content(self, width: int, height: int) -> list[Line]:
        look = self.look
        line: list[Span] = [(" ", look.text)]
        x = 1
        self._spots = []
        for key, word, action in self.entries:
            size = width_of(key) + 1 + width_of(word)
            if x + size > width:
                break
            line += [(key, look.key), (f" {word}  ", look.text)]
            self._spots.append((x, x + size, action))
            x += size + 2
        return [tuple(line)]

    def on_click(self, event: events.Click) -> None:
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                self.post_message(self.Pressed(action))


class Tabs(Panel, can_focus=False):
    """The names of the panels that share one place; at its right what binds the engine."""

    FRAMED = False
    NAMES = {"kv": "KV", "queues": "Queues", "events": "Events", "latency": "Latency", "knobs": "Knobs"}

    class Chosen(Message):
        def __init__(self, tab: str) -> None:
            self.tab = tab
            super().__init__()

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.tabs: tuple[str, ...] = ()
        self.tab = ""
        self._spots: list[tuple[int, int, str]] = []

    def show(self, tabs: tuple[str, ...], tab: str) -> None:
        self.tabs, self.tab = tabs, tab
        if self.is_attached:
            self.repaint()

    def content(self, width: int, height: int) -> list[Line]:
        look = self.look
        line: list[Span] = [(" ", look.text)]
        x = 1
        self._spots = []
        for tab in self.tabs:
            here = tab == self.tab
            text = f"‹{self.NAMES[tab]}›" if here else f" {self.NAMES[tab]} "
            line.append((text, look.strong if here else look.muted))
            self._spots.append((x, x + len(text), tab))
            x += len(text)
        if self.scene is not None:
            n, shares = self.scene.history.limit_shares(self.scene.cursor)
            limit = f"limit: {shares[0][0]} ({shares[0][1]:.0%} of {n}) " if shares else ""
            if x + len(limit) + 2 <= width:
                line += [(" " * (width - x - len(limit)), look.text), (limit, look.text)]
        return [tuple(line)]

    def on_click(self, event: events.Click) -> None:
        for start, stop, tab in self._spots:
            if start <= event.x < stop:
                self.post_message(self.Chosen(tab))


class Note(Panel, can_focus=False):
    """All there is below the least size."""

    FRAMED = False
    least = (80, 24)

    def content(self, width: int, height: int) -> list[Line]:
        text = f"need {self.least[0]}x{self.least[1]}, have {width}x{height}"
        lines: list[Line] = [()] * ((height - 1) // 2)
        left = max(0, (width - len(text)) // 2)
        return [*lines, ((" " * left + text, self.look.warn),)]
