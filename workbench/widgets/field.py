"""One line to type in, where nothing that acts on a terminal can get in: not typed, not pasted, not set."""

from __future__ import annotations

from textual import events
from textual.widgets import Input

from workbench.text import clean


class OneLine(Input):
    """Line breaks and tabs of pasted text stand as signs (`text.NEWLINE`, `text.TAB`)."""

    def __init__(self, value: str, *, id: str) -> None:
        super().__init__(value, id=id, compact=True, select_on_focus=False)
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return clean(value)

    def _on_paste(self, event: events.Paste) -> None:
        """All of it, where Textual takes the first line only."""
        if event.text:
            self.replace(clean(event.text.replace("\r\n", "\n")), *self.selection)
        event.stop()
        event.prevent_default()
