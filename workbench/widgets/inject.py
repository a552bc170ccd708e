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

from workbench.model.inject import LABELS, FieldError, Order, Values, check
from workbench.text import clean
from workbench.widgets.field import OneLine

WIDTHS = {
    "length": 8, "client": 8, "max_tokens": 8, "priority": 6, "count": 5, "temperature": 7, "deadline": 5, "seed": None,
}  # fmt: skip
"""The longest number each takes, and the cursor after it; None: what is left."""
SMALL_ROWS = (("length", "client", "max_tokens", "deadline"), ("priority", "count", "temperature", "seed"))
WIDE_ROW = ("length", "client", "max_tokens", "priority", "count", "temperature", "seed")
"""The deadline stands beside the prompt, so that the longest seed is seen whole."""


class Field(OneLine):
    """A field that knows which value it is."""

    # priority: these run before the next key is handed out, so that it goes to the new field
    BINDINGS = [
        Binding("tab", "move(1)", "Next field", show=False, priority=True, id="inject.next"),
        Binding("shift+tab", "move(-1)", "Field before", show=False, priority=True, id="inject.previous"),
    ]

    def __init__(self, name: str, width: int | None, value: str) -> None:
        super().__init__(value, id=f"inject-{name}")
        self.field = name
        if width is not None:
            self.styles.width = width

    def action_move(self, direction: int) -> None:
        fields = [field for form in self.screen.query(InjectForm) for field in form.fields()]
        focused = self.screen.focused
        at = fields.index(focused) if isinstance(focused, Field) else -1
        self.screen.set_focus(fields[(at + direction) % len(fields)])


class InjectForm(Widget, can_focus=False):
    HELP = """Requests to send now. The engine keeps running behind the form.

    prompt      text; the chat template of the model is applied
    random      that many random tokens instead of the text
    max_tokens  most output tokens (empty: as many as fit)
    priority    smaller is more urgent (policy "priority" only)
    due         seconds until the first token should be there (policies "edf" and "slack"; empty: no deadline)
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
        """The values changed: tell whether they fit. Late by nature, so ask `checked` what stands there now."""

    def __init__(self, values: Values, *, stacked: bool) -> None:
        super().__init__(id="inject")
        self.values = values
        self.stacked = stacked
        self.set_class(stacked, "-stacked")

    def compose(self) -> ComposeResult:
        def pair(name: str) -> list[Widget]:
            label = Static(f" {LABELS[name]}", markup=False, classes="label")
            return [label, Field(name, WIDTHS[name], getattr(self.values, name))]

        with Horizontal():
            yield Static("prompt" if self.stacked else " inject ▸ prompt", markup=False, classes="label")
            yield Field("prompt", None, self.values.prompt)
            if not self.stacked:
                yield from pair("deadline")
        rows = SMALL_ROWS if self.stacked else (WIDE_ROW,)
        for row in rows:
            with Horizontal():
                for name in row:
                    yield from pair(name)
        yield Static("", id="inject-note", markup=False)

    def on_mount(self) -> None:
        self.checked()
        self.post_message(self.Typed())

    def fields(self) -> list[Field]:
        """In the order of the tab key: what is asked most often first."""
        fields = list(self.query(Field))
        return fields if self.stacked else sorted(fields, key=lambda field: field.field == "deadline")

    def focus_first(self) -> None:
        """The prompt of last time stands there, chosen: typing replaces it, enter sends it again."""
        prompt = self.query_one("#inject-prompt", Field)
        self.screen.set_focus(prompt)
        prompt.action_select_all()

    # ---- typing -----------------------------------------------------------------------------------

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.checked()
        self.post_message(self.Typed())

    def checked(self) -> Order | None:
        """The order as the fields stand now; None when one is wrong, which the note then says."""
        try:
            return self._read()
        except FieldError as error:
            self.say(clean(str(error)), bad=True)
            return None

    def store(self) -> None:
        """Take over what the fields hold."""
        for field in self.query(Field):
            setattr(self.values, field.field, field.value)

    def _read(self) -> Order:
        self.store()
        return check(self.values)

    def say(self, text: str, *, bad: bool = False) -> None:
        note = self.query_one("#inject-note", Static)
        note.set_class(bad, "-bad")
        mark = "✗" if bad else "✓"
        note.update(self.app.look.plain(f" {mark} {text}"), layout=False)  # type: ignore[attr-defined]

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.send()

    def send(self) -> None:
        try:
            order = self._read()
        except FieldError as error:
            self.say(clean(str(error)), bad=True)
            self.screen.set_focus(self.query_one(f"#inject-{error.field}", Field))
            return
        self.post_message(self.Sent(order))

    def action_close(self) -> None:
        self.store()
        self.post_message(self.Closed())
