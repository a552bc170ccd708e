"""The inject form as a window, for screens without room for a docked one."""

from __future__ import annotations

from collections.abc import Callable

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static

from workbench.model.inject import Order, Values
from workbench.widgets import footer
from workbench.widgets.inject import InjectForm


class FormScreen(ModalScreen[None]):
    entries = footer.FORM

    def __init__(
        self,
        values: Values,
        tell_fit: Callable[[InjectForm], None],
        send: Callable[[Order, InjectForm], bool],
    ) -> None:
        super().__init__()
        self.values = values
        self.tell_fit = tell_fit
        self.send = send

    def compose(self) -> ComposeResult:
        with Vertical(id="form-box"):
            yield Static("Inject requests", markup=False, classes="form-title")
            yield InjectForm(self.values, stacked=True)
            yield Static("enter send   tab next field   esc close (values are kept)", markup=False, classes="label")

    def on_mount(self) -> None:
        self.query_one(InjectForm).focus_first()

    @on(InjectForm.Typed)
    def _typed(self) -> None:
        self.tell_fit(self.query_one(InjectForm))

    @on(InjectForm.Sent)
    def _sent(self, message: InjectForm.Sent) -> None:
        if self.send(message.order, self.query_one(InjectForm)):
            self.dismiss()

    @on(InjectForm.Closed)
    def _form_closed(self) -> None:
        self.dismiss()
