"""What the keys of the live screen do. Everything for the engine is a posted command; nothing waits for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine.commands import Abort, Pause, Resume, RunSteps, SetKnob, SetPace
from engine.config import EngineConfig
from engine.errors import WorkbenchError
from engine.host import EngineHost
from engine.knobs import KnobValue
from engine.records import Iteration, KnobChange
from engine.request import RequestStatus
from workbench.model.events import show
from workbench.model.history import History
from workbench.model.inject import Order, Values, fits, requests_of
from workbench.model.knob_steps import next_pace, pace_text
from workbench.model.session import Session
from workbench.screens.asking import AskScreen
from workbench.screens.form import FormScreen
from workbench.screens.help import HelpScreen
from workbench.screens.inspect import InspectScreen
from workbench.text import clean
from workbench.widgets.events import Events
from workbench.widgets.inject import InjectForm
from workbench.widgets.knobs import PACE, Knobs
from workbench.widgets.kvmap import KvMap
from workbench.widgets.panel import Panel

if TYPE_CHECKING:
    from textual.screen import Screen

    from workbench.screens.board import Board
    from workbench.widgets.panel import Scene
    from workbench.widgets.timeline import Timeline

    Base = Screen[None]
else:
    Base = object

LONG_PROMPT = 20_000
"""Characters: above this, "fits?" does not encode while a person types."""
STEPS_A_COLUMN = (None, 1, 4, 16, 64)


class Actions(Base):
    """Mixed into LiveScreen, which has the state."""

    session: Session
    host: EngineHost
    history: History
    config: EngineConfig
    values: Values
    board: Board
    timeline: Timeline
    knobs: Knobs
    scene: Scene | None
    cursor: int | None
    fixed_right: int | None
    selected: str | None
    per_column: int | None

    def dirty(self) -> None: ...
    def say(self, text: str, *, bad: bool = False) -> None: ...
    def hush(self) -> None: ...
    def noticing(self) -> bool:
        raise NotImplementedError

    def init_actions(self) -> None:
        self.injected = 0
        self._last_order: Order | None = None
        self._undo: list[KnobChange] = []
        self._undoing: tuple[str, KnobValue] | None = None
        self._asked_pause: tuple[int, bool] | None = None
        self._asked_pace: tuple[int, float | None] | None = None
        self._awaited: str | None = None
        """A request on its way to the engine, to be selected when it has a row."""

    def _ended(self) -> bool:
        """Nobody is there to obey; says so."""
        if self.host.alive:
            return False
        self.say("the engine has ended: nothing runs any more; q quits", bad=True)
        return True

    # ---- run control ------------------------------------------------------------------------------

    def action_pause(self) -> None:
        if self._ended():
            return
        live = self.history.live
        paused = live.paused
        # two quick presses: the engine has not answered the first one yet
        if self._asked_pause is not None and self._asked_pause[0] == live.seq:
            paused = self._asked_pause[1]
        self._asked_pause = (live.seq, not paused)
        self.host.post(Resume() if paused else Pause())
        self.say("resume" if paused else "pause at the next iteration boundary")
        self.dirty()

    def action_steps(self, steps: int) -> None:
        if self._ended():
            return
        self.action_live()
        self._asked_pause = None
        self.host.post(RunSteps(steps))
        self.hush()
        if not self.history.live.running and not self.history.live.num_waiting:
            self.say("nothing to run yet: the step waits for a request")
        self.dirty()

    def action_pace(self, direction: int) -> None:
        live = self.history.live
        pace = live.pace
        if self._asked_pace is not None and self._asked_pace[0] == live.seq:
            pace = self._asked_pace[1]
        self.set_pace(next_pace(pace, direction))

    def set_pace(self, pace: float | None) -> None:
        if self._ended():
            return
        self._asked_pace = (self.history.live.seq, pace)
        self.host.post(SetPace(pace))
        self.say(f"pace {pace_text(pace)}")
        self.dirty()

    # ---- knobs ------------------------------------------------------------------------------------

    def set_knob(self, name: str, value: KnobValue) -> None:
        if name == PACE:
            self.set_pace(value)  # type: ignore[arg-type]
            return
        if self._ended():
            return
        self.hush()
        self.host.post(SetKnob(name, value))
        if name in ("max_num_seqs", "max_num_active_seqs"):
            self.say(f"{name} {show(value)}: bounds admission; those running may finish")
        self.dirty()

    def action_undo_knob(self) -> None:
        if self._ended():
            return
        if not self._undo:
            self.say("no knob was changed")
            return
        change = self._undo.pop()
        self._undoing = (change.name, change.old)
        self.knobs.asked[change.name] = change.old
        self.host.post(SetKnob(change.name, change.old))
        self.say(f"undo: {change.name} back to {show(change.old)}")
        self.dirty()

    def heard(self, it: Iteration) -> None:
        """Answers of the engine to what was asked."""
        for change in it.knobs:
            self.knobs.applied(change.name, it.step, change.version)
            if self._undoing == (change.name, change.new):
                self._undoing = None
            else:
                self._undo.append(change)
            self.say(f"{change.name} {show(change.old)}→{show(change.new)} applied at step {it.step} v{change.version}")
        for notice in it.notices:
            if self.knobs.refused(notice):
                self._undoing = None
            self.say(clean(notice), bad=True)

    def action_focus_knobs(self) -> None:
        self.focus_panel("knobs")

    def action_knob(self, action: str, amount: int) -> None:
        """Footer entries of the knobs panel."""
        knobs = self.knobs
        if action == "choose":
            knobs.action_choose(amount)
        elif action == "turn":
            knobs.action_turn(amount, False)
        elif action == "apply":
            knobs.action_apply()
        else:
            knobs.action_take_back()

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
            letter, self.selected = self.history.letters.of(self.selected), None
            if not self.noticing():
                self.say(f"{letter} has left the rows: nothing is selected now")

    def action_inspect(self) -> None:
        self._selected_or_first()
        if self.selected is None or self.scene is None:
            self.say("no request to show; press i to send one")
            return
        screen = InspectScreen(self.selected, self.host.info.config.block_size)
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
            self.say(f"{self.history.letters.of(request.id)} has ended already")
        else:
            self.host.post(Abort(request.id))
            letter = self.history.letters.of(request.id)
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
        good, text = fits(order, tokens, self.history.live, self.config)
        form.say(about + text, bad=not good)

    def send(self, order: Order, form: InjectForm | None = None) -> bool:
        """True when the requests are on their way; what is wrong is told where the person looks."""
        if self._ended():
            if form is not None:
                form.say("the engine has ended: nothing can be sent", bad=True)
            return False
        info = self.host.info
        try:
            submit = requests_of(order, self.injected, self.session.encode, info.vocab_size, self.config.model_len)
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
        if self._last_order is None:
            self.say("nothing was injected yet: press i first")
        else:
            self.send(self._last_order)

    # ---- looking back -----------------------------------------------------------------------------

    def look_at(self, step: int | None) -> None:
        """Move the cursor; None or the newest step is live."""
        self.hush()
        history = self.history
        if step is None or not history.record_at(history.last_step):
            self.cursor = self.fixed_right = None
            self.dirty()
            return
        step = history.clamp(step)
        if self.fixed_right is None:
            self.fixed_right = history.last_step
        self.cursor = step
        if self.scene is not None:
            k = self.scene.per_column
            span = self.timeline.columns() * k
            if not self.fixed_right - span < step <= self.fixed_right:
                self.fixed_right = min(history.last_step, step + span // 2)
        self.dirty()

    def action_cursor(self, steps: int) -> None:
        last = self.history.last_step
        step = (last if self.cursor is None else self.cursor) + steps
        self.look_at(None if steps > 0 and step >= last else step)

    def action_first(self) -> None:
        self.look_at(self.history.first_step)

    def action_live(self) -> None:
        self.look_at(None)

    def action_mark(self, direction: int) -> None:
        history = self.history
        start = history.last_step + 1 if self.cursor is None else self.cursor
        step = history.next_mark(start, direction)
        if step is None:
            self.say("no preemption " + ("before" if direction < 0 else "after") + " this step")
        else:
            self.look_at(step)

    def action_go_to(self) -> None:
        history = self.history

        def chosen(text: str | None) -> None:
            if text is None:
                return
            digits = text.strip()
            if not re.fullmatch(r"[+-]?[0-9]{1,18}", digits):
                self.say(f"{clean(text)!r} is not a step number", bad=True)
                return
            step, first, last = int(digits), history.first_step, history.last_step
            self.look_at(step)
            if not first <= step <= last:
                self.say(f"step {step} is not here: showing {history.clamp(step)}, the nearest of {first}..{last}")

        self.app.push_screen(AskScreen(f"Go to step ({history.first_step}..{history.last_step})", ""), chosen)

    # ---- views ------------------------------------------------------------------------------------

    def action_kv_mode(self) -> None:
        self.say(f"KV map shows {self.query_one(KvMap).next_mode()}")
        self.dirty()

    def action_columns(self) -> None:
        at = STEPS_A_COLUMN.index(self.per_column)
        self.per_column = STEPS_A_COLUMN[(at + 1) % len(STEPS_A_COLUMN)]
        self.say("steps a column: " + ("by speed" if self.per_column is None else str(self.per_column)))
        self.dirty()

    def action_event_filter(self) -> None:
        self.say(f"events: {self.query_one(Events).next_filter()}")
        self.dirty()

    def focus_panel(self, name: str) -> None:
        if self.board.zoomed:
            self.board.zoomed = name
            self.board.sync()
        elif name in self.board.arrangement().tabs:
            self.board.show_tab(name)
        panel = self.query_one(f"#{name}", Panel)
        panel.showing = True
        self.hush()
        self.set_focus(panel, scroll_visible=False)
        self.dirty()

    def action_next_panel(self, direction: int) -> None:
        if self.board.form:
            (self.focus_next if direction > 0 else self.focus_previous)("Field")
            return
        names = self.board.reachable()
        if not names:
            return
        here = self.focused.id if self.focused is not None else ""
        at = names.index(here) + direction if here in names else 0
        self.focus_panel(names[at % len(names)])

    def action_zoom(self) -> None:
        focused = self.focused
        name = focused.id if isinstance(focused, Panel) and focused.id else "timeline"
        self.hush()
        self.board.zoomed = "" if self.board.zoomed else name
        self.board.sync()

    def action_leave(self) -> None:
        if self.board.zoomed:
            self.action_zoom()
        elif self.timeline.filter:
            self.hush()
            self.timeline.filter = ""
            self.dirty()
        elif self.cursor is not None:
            self.action_live()
        else:
            self.timeline.focus()

    def action_help(self) -> None:
        focused = self.focused
        title = getattr(focused, "TITLE", "") or "Workbench"
        self.app.push_screen(HelpScreen(title, getattr(focused, "HELP", None) or ""))
