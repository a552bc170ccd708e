"""One question, one line of answer."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from workbench.text import clean
from workbench.widgets import footer
from workbench.widgets.field import OneLine


class AskScreen(ModalScreen[str | None]):
    """Dismissed with the answer, or None for escape."""

    entries = footer.ASKING
    BINDINGS = [Binding("escape", "dismiss(None)", "Close", show=False, id="ask.close")]

    def __init__(self, question: str, value: str, fault: Callable[[str], str] | None = None) -> None:
        """`fault` says in a line what is wrong with an answer; it is then asked again."""
        super().__init__()
        self.question = question
        self.value = value
        self.fault = fault

    def compose(self) -> ComposeResult:
        with Vertical(id="ask"):
            question = f"{self.question}   (enter: go, esc: close)"
            yield Static(self._plain(question), markup=False, id="ask-question")
            yield OneLine(self.value, id="ask-input", select=True)
            if self.fault is not None:
                yield Static("", markup=False, id="ask-fault")

    def _plain(self, text: str) -> str:
        return self.app.look.plain(text)  # type: ignore[attr-defined,no-any-return]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        fault = self.fault(event.value) if self.fault is not None else ""
        if fault:
            self.query_one("#ask-fault", Static).update(self._plain(f"✗ {clean(fault)}"))
        else:
            self.dismiss(event.value)
