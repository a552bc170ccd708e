"""One question, yes or no."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from workbench.widgets import footer


class ConfirmScreen(ModalScreen[bool]):
    """Dismissed with True for yes."""

    entries = footer.CONFIRMING
    BINDINGS = [
        Binding("enter,y", "dismiss(True)", "Yes", show=False, id="confirm.yes"),
        Binding("escape,n,q", "dismiss(False)", "No", show=False, id="confirm.no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def compose(self) -> ComposeResult:
        with Vertical(id="confirm"):
            yield Static(self.app.look.plain(self.question), markup=False)  # type: ignore[attr-defined]
            yield Static("enter yes, esc no", markup=False, classes="label")
