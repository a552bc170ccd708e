"""What keys do to requests: choose, read, abort, filter, inject."""

from __future__ import annotations

from engine.commands import Abort
from engine.errors import WorkbenchError
from engine.request import RequestStatus
from workbench.model.inject import Order, fits, model_len, requests_of
from workbench.screens.actions import Actions
from workbench.screens.asking import AskScreen
from workbench.screens.form import FormScreen
from workbench.screens.inspect import InspectScreen
from workbench.text import clean
from workbench.widgets.inject import InjectForm

LONG_PROMPT = 20_000
"""Characters: above this, "fits?" does not encode while a person types."""


class RequestActions(Actions):
    """For LiveScreen: see `Actions`."""

    # ---- requests ---------------------------------------------------------------------------------

    def _ids(self) -> list[str]:
        return self.scene.ids if self.scene is not None else []

    def action_select(self, rows: int) -> None:
        ids = self._ids()
        if not ids:
            return
        if self.selected in ids:
            at = max(0, min(len(ids) - 1, ids.index(self.selected) + rows))
        else:
            at = 0 if rows > 0 else len(ids) - 1
        self._select(ids[at])

    def _select(self, id: str) -> None:
        self.selected, self._awaited = id, None
        self.hush()
        self.dirty()

    def _selected_or_first(self) -> str | None:
        """The selected request; with none, that of the first row on the screen."""
        shown = [id for id in self.timeline.shown if id in self._ids()]
        if self.selected not in self._ids():
            self.selected = shown[0] if shown else None
        return self.selected

    def keep_selection(self, ids: list[str]) -> None:
        """Select what was sent once it has a row; let go of what has none any more. Looking back changes nothing."""
        if self.cursor is not None:
            return
        if self._awaited in ids:
            self.selected, self._awaited = self._awaited, None
        elif self.selected is not None and self.selected not in ids:
            letter, self.selected = self.history.letters.name(self.selected), None
            if not self.noticing():
                self.say(f"{letter} has left the rows: nothing is selected now")

    def action_inspect(self) -> None:
        self._selected_or_first()
        if self.selected is None or self.scene is None:
            self.say("no request to show; press i to send one")
            return
        screen = InspectScreen(self.selected)
        self.app.push_screen(screen)
        screen.set_view(self.scene)
        self.dirty()

    def action_abort(self) -> None:
        if self._ended():
            return
        request = self.history.live.requests.get(self._selected_or_first() or "")
        if request is None:
            self.say("no request to abort")
        elif request.status is RequestStatus.FINISHED:
            self.say(f"{self.history.letters.name(request.id)} has ended already")
        else:
            self.host.post(Abort(request.id))
            letter = self.history.letters.name(request.id)
            self.say(f"abort {letter} ({clean(request.client)}) at the next iteration boundary")
            self.dirty()

    def action_filter(self) -> None:
        def chosen(text: str | None) -> None:
            if text is not None:
                self.hush()
                self.timeline.filter = text.strip()
                self.dirty()

        self.app.push_screen(AskScreen("Show rows with client, text or letter", self.timeline.filter), chosen)

    # ---- inject -----------------------------------------------------------------------------------

    def action_inject(self) -> None:
        if self._ended():
            return
        if not self.board.wide:
            self.app.push_screen(FormScreen(self.values, self.tell_fit, self.send))
            return
        if self.board.form:
            self.query_one(InjectForm).focus_first()
            return
        self.board.form = True
        form = InjectForm(self.values, stacked=False)
        self.board.mount(form)
        self.board.sync()
        self.call_after_refresh(form.focus_first)

    def close_form(self) -> None:
        self.board.form = False
        for form in self.query(InjectForm):
            form.store()
        self.query(InjectForm).remove()
        self.timeline.focus()
        self.board.sync()

    def action_close_form(self) -> None:
        self.close_form()

    def action_send_form(self) -> None:
        for form in self.query(InjectForm):
            form.send()

    def tell_fit(self, form: InjectForm) -> None:
        order = form.checked()
        if order is None:
            return
        try:
            if order.length:
                tokens, about = order.length, ""
            elif len(order.prompt) > LONG_PROMPT:
                tokens, about = len(order.prompt) // 4, "about "
            else:
                tokens, about = len(self.session.encode(order.prompt)), ""
        except WorkbenchError as error:
            form.say(clean(str(error)), bad=True)
            return
        good, text = fits(order, tokens, self.history.live)
        form.say(about + text, bad=not good)

    def send(self, order: Order, form: InjectForm | None = None) -> bool:
        """True when the requests are on their way; what is wrong is told where the person looks."""
        if self._ended():
            if form is not None:
                form.say("the engine has ended: nothing can be sent", bad=True)
            return False
        info = self.host.info
        try:
            length = model_len(self.history.live)
            submit = requests_of(order, self.injected, self.session.encode, info.vocab_size, length)
        except WorkbenchError as error:
            if form is not None:
                form.say(clean(str(error)), bad=True)
            else:
                self.say(clean(str(error)), bad=True)
            return False
        self.injected += order.count
        self._last_order = order
        self.host.post(submit)
        chosen = self.history.live.requests.get(self.selected or "")
        if chosen is None or chosen.status is RequestStatus.FINISHED:
            self._awaited = submit.requests[0].id
        sent = f"sent {order.count} x {submit.requests[0].num_prompt} tokens for {clean(order.client)}"
        if form is not None:
            form.say(f"{sent}; enter sends again, esc closes")
        self.say(sent)
        self.dirty()
        return True

    def action_repeat(self) -> None:
        if self._ended():
            return
        if self._last_order is None:
            self.say("nothing was injected yet: press i first")
        else:
            self.send(self._last_order)
