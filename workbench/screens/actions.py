"""What the keys of the live screen do to the engine: run control and knobs. All of it is posted; nothing waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.commands import Pause, Rebuild, Resume, RunSteps, SetKnob, SetPace
from engine.errors import WorkbenchError
from engine.host import EngineHost
from engine.knobs import KnobValue
from engine.records import Iteration
from workbench.model.build import building_text
from workbench.model.events import STORM, show
from workbench.model.history import History
from workbench.model.inject import Order, Values
from workbench.model.knob_steps import next_pace, pace_text
from workbench.model.knob_table import PACE, check, needs_build
from workbench.model.session import Session
from workbench.screens.asking import AskScreen
from workbench.screens.confirming import ConfirmScreen
from workbench.text import clean
from workbench.widgets.knobs import Knobs

if TYPE_CHECKING:
    from textual.screen import Screen

    from workbench.screens.board import Board
    from workbench.widgets.panel import Scene
    from workbench.widgets.timeline import Timeline

    Base = Screen[None]
else:
    Base = object


class Actions(Base):
    """Mixed into LiveScreen, which has the state."""

    session: Session
    host: EngineHost
    history: History
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
        self._undo: list[dict[str, KnobValue]] = []
        """Old values of what was changed, the newest change last."""
        self._undone = False
        """Something was undone already."""
        self._undoing: dict[str, KnobValue] | None = None
        self._rebuilding: dict[str, tuple[KnobValue, KnobValue]] | None = None
        """Old and new values the engine is being built anew for."""
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

    def type_knob(self, name: str, value: KnobValue) -> None:
        """Ask for the value of a row; it is sent as soon as it can be one."""
        text = pace_text(value) if name == PACE else "" if value == "" else show(value)  # type: ignore[arg-type]
        text = text.removesuffix("/s")

        def fault(typed: str) -> str:
            try:
                check(name, typed)
            except WorkbenchError as error:
                return str(error)
            return ""

        def chosen(typed: str | None) -> None:
            if typed is None or self._ended():
                return
            value = check(name, typed)
            if needs_build(name, value, self.history.live.num_blocks):
                self.ask_rebuild({name: value})
                return
            if name != PACE:
                self.knobs.asked[name] = value
            self.set_knob(name, value)

        self.app.push_screen(AskScreen(f"{name}: {self.knobs.range_of(self.history, name)}", text, fault), chosen)

    def ask_rebuild(self, values: dict[str, KnobValue], *, undo: bool = False) -> None:
        """Build the engine anew with these values, if the person agrees."""
        if self._ended():
            return
        if self._rebuilding is not None:
            self.say("the engine is being built anew already")
            return
        now = {name: self.knobs.live_value(self.history, name) for name in values}
        changes = {name: (now[name], value) for name, value in values.items() if now[name] != value}
        if not changes:
            self.say(f"{', '.join(values)}: that is the value now")
            return

        def answered(yes: bool | None) -> None:
            if not yes:
                self.knobs.answer = f"{', '.join(changes)}: left as it was"
                self.dirty()
                return
            if self._ended():
                return
            wanted = {name: new for name, (_, new) in changes.items()}
            self._rebuilding = changes
            if undo:
                self._undo.pop()
                self._undone = True
                self._undoing = wanted
            self.knobs.asked.update(wanted)
            self.host.post(Rebuild(wanted))
            self.say("building the engine anew")
            self.dirty()

        self.app.push_screen(ConfirmScreen(building_text(changes, self.history.live)), answered)

    def action_undo_knob(self) -> None:
        if self._ended():
            return
        if not self._undo:
            self.say("nothing left to undo" if self._undone else "nothing to undo")
            return
        values = self._undo[-1]
        blocks = self.history.live.num_blocks
        if any(needs_build(name, value, blocks) for name, value in values.items()):
            self.ask_rebuild(values, undo=True)
            return
        self._undoing, self._undone = self._undo.pop(), True
        for name, value in values.items():
            self.knobs.asked[name] = value
            self.host.post(SetKnob(name, value))
            self.say(f"undo: {name} back to {show(value)}")
        self.dirty()

    def heard(self, it: Iteration) -> None:
        """Answers of the engine to what was asked."""
        built = self._rebuilding or {}
        if it.rebuilt is not None:
            self._built(it)
        for change in it.knobs:
            # what a rebuild changes besides what was asked for goes back with it
            asked = it.rebuilt is None or (change.name in self.knobs.asked and change.name not in built)
            if not asked:
                continue
            self.knobs.applied(change.name, it.step, change.version)
            if self._undoing == {change.name: change.new}:
                self._undoing = None
            else:
                self._undo.append({change.name: change.old})
            self.say(f"{change.name} {show(change.old)}→{show(change.new)} applied at step {it.step} v{change.version}")
        for notice in it.notices:
            name = self.knobs.refused(notice)
            refused = notice.startswith("refused ")
            if name:
                self._undoing = None
            if refused and self._rebuilding is not None and (not name or name in self._rebuilding):
                self._not_built(notice)
            self.say(clean(notice), bad=refused or notice.startswith(STORM))

    def _built(self, it: Iteration) -> None:
        """The engine was built anew."""
        changes, self._rebuilding = self._rebuilding, None
        if changes is None:
            self.say("the engine was built anew")
            return
        for name in changes:
            self.knobs.asked.pop(name, None)
        if self._undoing is not None and self._undoing.keys() == changes.keys():
            self._undoing = None
        else:
            self._undo.append({name: old for name, (old, _) in changes.items()})
        what = ", ".join(f"{name} {show(old)}→{show(new)}" for name, (old, new) in changes.items())
        self.knobs.answer = f"{what}: built anew at step {it.step}"
        self.say(self.knobs.answer)

    def _not_built(self, notice: str) -> None:
        for name in self._rebuilding or {}:
            self.knobs.asked.pop(name, None)
        self._rebuilding = self._undoing = None
        self.knobs.answer = clean(notice)

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
        elif action == "type":
            knobs.action_type()
        else:
            knobs.action_take_back()
