"""One question, one line of answer."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from workbench.widgets import footer
from workbench.widgets.field import OneLine


class AskScreen(ModalScreen[str | None]):
    """Dismissed with the answer, or None for escape."""

    entries = footer.ASKING
    BINDINGS = [Binding("escape", "dismiss(None)", "Close", show=False, id="ask.close")]

    def __init__(self, question: str, value: str) -> None:
        super().__init__()
        self.question = question
        self.value = value

    def compose(self) -> ComposeResult:
        with Vertical(id="ask"):
            yield Static(f"{self.question}   (enter: go, esc: close)", markup=False)
            yield OneLine(self.value, id="ask-input")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.dismiss(event.value)
