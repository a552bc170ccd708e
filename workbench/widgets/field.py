"""One line to type in that keeps the text as it was given and shows it harmless.

The value is what goes to the model; only the drawing replaces what a terminal would act on or has no picture for.
Invariant: every character of the value has exactly one in the picture, so cursor and selection stay in step.
"""

from __future__ import annotations

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.widgets import Input

from workbench.text import UNSHOWN, clean, faithful


class OneLine(Input):
    def __init__(self, value: str, *, id: str, select: bool = False) -> None:
        """`select`: what is typed first replaces the value."""
        super().__init__(value, id=id, compact=True, select_on_focus=select)
        self.cursor_blink = False

    def validate_value(self, value: str) -> str:
        return faithful(value)

    # ---- the picture ------------------------------------------------------------------------------

    @property
    def shown(self) -> str:
        value = self.value
        if value.isascii() and value.isprintable():
            return value
        return "".join([clean(char) or UNSHOWN for char in value])

    @property
    def _value(self) -> Text:
        return Text(self.shown, no_wrap=True, overflow="ignore", end="")

    def _position_to_cell(self, position: int) -> int:
        return cell_len(self.shown[:position])

    def _cell_offset_to_index(self, offset: int) -> int:
        offset += self.scroll_offset[0]
        cells = 0
        for index, char in enumerate(self.shown):
            cells += cell_len(char)
            if offset < cells:
                return index
        return len(self.value)

    # ---- typing -----------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        if event.is_printable:
            return
        # Left alone, an editing key travels to the app and back, and is overtaken by letters typed right after it.
        for binding in self._bindings.key_to_bindings.get(event.key, ()):
            if not binding.priority and await self.app.run_action(binding.action, self):
                event.stop()
                event.prevent_default()
                return
        if event.character is not None and ord(event.character[0]) > 0x9F:
            # joiners and wide spaces, which Python does not call printable
            self.replace(event.character, *self.selection)
            event.stop()
            event.prevent_default()

    def _on_paste(self, event: events.Paste) -> None:
        """All of it, where Textual takes the first line only."""
        if event.text:
            self.replace(faithful(event.text), *self.selection)
        event.stop()
        event.prevent_default()
