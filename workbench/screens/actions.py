"""What the keys of the live screen do to the engine: run control and knobs. All of it is posted; nothing waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.commands import Pause, Resume, RunSteps, SetKnob, SetPace
from engine.config import EngineConfig
from engine.host import EngineHost
from engine.knobs import KnobValue
from engine.records import Iteration, KnobChange
from workbench.model.events import show
from workbench.model.history import History
from workbench.model.inject import Order, Values
from workbench.model.knob_steps import next_pace, pace_text
from workbench.model.session import Session
from workbench.text import clean
from workbench.widgets.knobs import PACE, Knobs

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
