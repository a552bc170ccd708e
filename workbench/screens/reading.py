"""A window with lines to read: scrolls, closes with escape, q or enter."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.screen import ModalScreen

from workbench.widgets import footer
from workbench.widgets.panel import Line, Panel


class Reader(Panel):
    """Lines made for the width by the screen it is on."""

    BINDINGS = [
        Binding("up", "lines(-1)", "Up", show=False, id="reader.up"),
        Binding("down", "lines(1)", "Down", show=False, id="reader.down"),
        Binding("pageup", "pages(-1)", "Page up", show=False, id="reader.page-up"),
        Binding("pagedown,space", "pages(1)", "Page down", show=False, id="reader.page-down"),
        Binding("home", "lines(-1000000)", "Start", show=False, id="reader.home"),
        Binding("end", "lines(1000000)", "End", show=False, id="reader.end"),
    ]

    def content(self, width: int, height: int) -> list[Line]:
        screen = self.screen
        assert isinstance(screen, ReadingScreen)
        lines = screen.lines(width)
        self.top = max(0, min(self.top, len(lines) - height))
        return lines[self.top : self.top + height]

    def note(self) -> str:
        screen = self.screen
        assert isinstance(screen, ReadingScreen)
        return screen.hint

    def heading(self) -> str:
        screen = self.screen
        assert isinstance(screen, ReadingScreen)
        return screen.heading

    def action_lines(self, lines: int) -> None:
        self.scroll_lines(lines)

    def action_pages(self, pages: int) -> None:
        self.scroll_lines(pages * max(1, self.inner[1] - 1))


class ReadingScreen(ModalScreen[None]):
    BINDINGS = [
        Binding("escape,enter", "dismiss", "Close", show=False, id="reading.close"),
        Binding("q", "leave", "Close", show=False, id="reading.leave"),
        Binding("g", "app.glyphs", "Glyphs", show=False, id="reading.glyphs"),
        Binding("s", "app.shoot", "Screenshot", show=False, id="reading.screenshot"),
    ]
    hint = "↑ ↓ scroll  esc close"
    entries = footer.READING

    def __init__(self, heading: str) -> None:
        super().__init__()
        self.heading = heading

    def compose(self) -> ComposeResult:
        yield Reader(id="reader", look=self.app.look)  # type: ignore[attr-defined]

    def on_mount(self) -> None:
        self.query_one(Reader).focus()

    def action_leave(self) -> None:
        self.dismiss()

    def lines(self, width: int) -> list[Line]:
        return []
