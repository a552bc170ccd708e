"""The inject form: one line on wide screens, stacked in a window on small ones.

Letters go to the field in focus; enter sends, escape closes. The values live outside, so closing loses nothing.
"""

from __future__ import annotations

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Static

from workbench.model.inject import FieldError, Order, Values, check
from workbench.text import clean
from workbench.widgets.field import OneLine

FIELDS: tuple[tuple[str, str, int], ...] = (
    ("length", "random", 6),
    ("client", "client", 10),
    ("max_tokens", "max_tokens", 6),
    ("priority", "priority", 4),
    ("count", "count", 4),
    ("temperature", "temp", 5),
    ("seed", "seed", 8),
)
SMALL_ROWS = (("length", "client", "max_tokens"), ("priority", "count", "temperature", "seed"))


class Field(OneLine):
    """A field that knows which value it is."""

    def __init__(self, name: str, width: int | None, value: str) -> None:
        super().__init__(value, id=f"inject-{name}")
        self.field = name
        if width is not None:
            self.styles.width = width


class InjectForm(Widget, can_focus=False):
    HELP = """Requests to send now. The engine keeps running behind the form.

    prompt      text; the chat template of the model is applied
    random      that many random tokens instead of the text
    max_tokens  most output tokens (empty: as many as fit)
    priority    smaller is more urgent (policy "priority" only)
    count       how many such requests        temp, seed   0 is greedy

    The last line tells blocks at admission and at the end against free ones. On the live screen I repeats the last."""
    BINDINGS = [
        Binding("escape", "close", "Close", id="inject.close"),
    ]

    class Sent(Message):
        def __init__(self, order: Order) -> None:
            self.order = order
            super().__init__()

    class Closed(Message):
        pass

    class Typed(Message):
        """The values changed and are right: tell whether they fit."""

        def __init__(self, order: Order) -> None:
            self.order = order
            super().__init__()

    def __init__(self, values: Values, *, stacked: bool) -> None:
        super().__init__(id="inject")
        self.values = values
        self.stacked = stacked
        self.set_class(stacked, "-stacked")

    def compose(self) -> ComposeResult:
        widths = {name: width for name, _, width in FIELDS}
        labels = {name: label for name, label, _ in FIELDS}

        def pair(name: str) -> list[Widget]:
            label = Static(f" {labels[name]}", markup=False, classes="label")
            return [label, Field(name, widths[name], getattr(self.values, name))]

        with Horizontal():
            yield Static("prompt" if self.stacked else " inject ▸ prompt", markup=False, classes="label")
            yield Field("prompt", None, self.values.prompt)
        rows = SMALL_ROWS if self.stacked else (tuple(name for name, _, _ in FIELDS),)
        for row in rows:
            with Horizontal():
                for name in row:
                    yield from pair(name)
        yield Static("", id="inject-note", markup=False)

    def on_mount(self) -> None:
        self._check()

    def focus_first(self) -> None:
        """The prompt of last time stands there, chosen: typing replaces it, enter sends it again."""
        prompt = self.query_one("#inject-prompt", Field)
        prompt.focus()
        prompt.action_select_all()

    # ---- typing -----------------------------------------------------------------------------------

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        field = event.input
        if isinstance(field, Field):
            setattr(self.values, field.field, event.value)
            self._check()

    def _check(self) -> Order | None:
        try:
            order = check(self.values)
        except FieldError as error:
            self.say(clean(str(error)), bad=True)
            return None
        self.post_message(self.Typed(order))
        return order

    def say(self, text: str, *, bad: bool = False) -> None:
        note = self.query_one("#inject-note", Static)
        note.set_class(bad, "-bad")
        mark = "✗" if bad else "✓"
        note.update(f" {mark} {text}", layout=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.send()

    def send(self) -> None:
        try:
            order = check(self.values)
        except FieldError as error:
            self.say(clean(str(error)), bad=True)
            self.query_one(f"#inject-{error.field}", Field).focus()
            return
        self.post_message(self.Sent(order))

    def action_close(self) -> None:
        self.post_message(self.Closed())
