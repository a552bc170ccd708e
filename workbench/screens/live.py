"""The live screen: takes the engine's records at a steady rate and shows them; turns keys into commands.

The engine is never waited for: `tick` drains what is there, folds it into the history, and hands a scene of plain
data to the panels, which repaint what differs. The rate of frames falls by itself with what a frame costs.
"""

from __future__ import annotations

import time

from textual import on
from textual.app import ComposeResult
from textual.screen import Screen
from textual.timer import Timer

from engine.records import Iteration
from workbench.log import write_fault
from workbench.model.history import FADE_STEPS, History
from workbench.model.inject import Values
from workbench.model.layout import HEIGHTS, WIDTHS
from workbench.model.session import Session
from workbench.screens.board import Board
from workbench.screens.fault import FaultScreen
from workbench.screens.inspect import InspectScreen
from workbench.screens.keys import BINDINGS
from workbench.screens.record_actions import RecordActions
from workbench.widgets import footer
from workbench.widgets.budget import Budget
from workbench.widgets.events import Events
from workbench.widgets.footer import Keys, Note, Tabs
from workbench.widgets.header import Header
from workbench.widgets.inject import InjectForm
from workbench.widgets.knobs import Knobs
from workbench.widgets.kvmap import KvMap
from workbench.widgets.latencies import Latencies
from workbench.widgets.panel import Panel, Scene
from workbench.widgets.queues import Queues
from workbench.widgets.scrubber import Scrubber
from workbench.widgets.status import NOTICE_SECONDS, Status
from workbench.widgets.timeline import Timeline, matches

MOST_RECORDS = 500
"""In one frame; the rest stays with the host for the next."""
FASTEST = 15
SLOWEST = 4
SHARE = 0.045
"""Of one core: what frames may cost. The engine loses somewhat more, since it waits for the interpreter meanwhile."""
LONG = 0.5
"""Seconds an iteration may take before the screen says what it computes, and how often it then says so."""
WARM_UP = 10
"""Frames before the cost counts: the first ones build every style."""
STEPS_A_SECOND = 30.0
"""Faster than this, a column of the timeline stands for several steps."""
PER_COLUMN = (1, 2, 4, 8, 16, 32, 64, 128)


class LiveScreen(RecordActions, Screen[None]):
    BINDINGS = BINDINGS
    HORIZONTAL_BREAKPOINTS = WIDTHS
    VERTICAL_BREAKPOINTS = HEIGHTS
    AUTO_FOCUS = "#timeline"

    def __init__(self, session: Session, *, fps: int = FASTEST) -> None:
        super().__init__(id="live")
        self.session = session
        self.host = session.host
        self.history = self.make_history()
        self.recorder = session.recorder
        self._last_recorded = session.recorder.path if session.recorder is not None else None
        self.values = Values()
        self.cursor: int | None = None
        self.fixed_right: int | None = None
        self.selected: str | None = None
        self.per_column: int | None = None
        """None: by the speed of the engine."""
        self.scene: Scene | None = None
        self.fps = self.most_fps = fps
        """0: nobody ticks but the caller (tests)."""
        self.frame_ms = 0.0
        self._timer: Timer | None = None
        self._auto_columns = 1
        self._cpu = time.thread_time()
        self._painted_at = 0.0
        self._cost_at = 0.0
        self._cost = ""
        self._frames = 0
        self._notice_until = 0.0
        self._dirty = True
        self._fault_shown = False
        self.init_actions()

    def make_history(self) -> History:
        info = self.host.info
        config = info.config
        return History(config.num_blocks, config.block_size, config.values(), model=info.model, dtype=info.dtype)

    # ---- life -------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        yield Board(
            Header(id="header"),
            Timeline(id="timeline"),
            Knobs(id="knobs"),
            Queues(id="queues"),
            Budget(id="budget"),
            Latencies(id="latency"),
            KvMap(id="kv"),
            Events(id="events"),
            Tabs(id="tabs"),
            Scrubber(id="scrubber"),
            Status(id="status"),
            Keys(id="footer"),
            Note(id="note"),
        )

    def on_mount(self) -> None:
        self.board = self.query_one(Board)
        self.status.hint = "i opens the inject form   I repeats the last   / filters rows   ? all keys"
        self._pace_timer()

    def _pace_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
        self._timer = self.set_interval(1 / self.fps, self.tick, name="frames") if self.fps else None

    @property
    def timeline(self) -> Timeline:
        return self.query_one(Timeline)

    @property
    def knobs(self) -> Knobs:
        return self.query_one(Knobs)

    @property
    def status(self) -> Status:
        return self.query_one(Status)

    # ---- frames -----------------------------------------------------------------------------------

    def tick(self) -> None:
        """One frame: take the records, and repaint if there is a reason."""
        records = self.host.drain(MOST_RECORDS)
        for it in records:
            self.history.append(it)
            if self.session.progress is not None:
                self.session.progress.add(it)
            self._notice(it)
        now = time.monotonic()
        if self._notice_until and now > self._notice_until:
            self._notice_until = 0.0
            self.status.say("")
        # while a long step runs, or none does, nothing comes, and the speed shown must fall
        moving = self.scene is not None and self.scene.speed != (0.0, 0.0) and not self.history.live.paused
        stale = moving and now - self._painted_at > 1.0
        flight = self.host.in_flight
        long = flight is not None and self.host.now() - flight.since > LONG and now - self._painted_at > LONG
        if records or self._dirty or stale or long:
            self._measure(now)
            self._painted_at = now
            self.paint()

    def _notice(self, it: Iteration) -> None:
        if it.knobs or it.notices or it.rebuilt is not None or it.fault is not None:
            self.heard(it)
        if it.fault is not None and not self._fault_shown:
            self._fault_shown = True
            self.app.push_screen(FaultScreen(it.fault, write_fault(it.fault)))

    def _measure(self, now: float) -> None:
        """What the frame before cost this thread, and whether the rate should change."""
        cpu = time.thread_time()
        cost, self._cpu = (cpu - self._cpu) * 1000, cpu
        self._frames += 1
        if not self.fps or self._frames < WARM_UP:
            return
        self.frame_ms = cost if not self.frame_ms else 0.9 * self.frame_ms + 0.1 * min(cost, 100.0)
        if now - self._cost_at > 1.0:
            self._cost_at = now
            self._cost = f"UI {self.frame_ms:.1f}ms {self.fps}fps"
        if self._frames < 2 * WARM_UP:
            return
        allowed = max(SLOWEST, min(self.most_fps, int(1000 * SHARE / max(self.frame_ms, 0.1))))
        if not 0.85 * self.fps < allowed < 1.25 * self.fps:
            self._set_fps(allowed)

    def _set_fps(self, fps: int) -> None:
        self.fps, self._frames, self.frame_ms = fps, 0, 0.0
        self._pace_timer()

    def dirty(self) -> None:
        """Something but the engine changed what is to be seen: paint soon, a key must not wait for the next frame."""
        first, self._dirty = not self._dirty, True
        if not self.fps:
            self.tick()
        elif first:
            self.call_later(self.tick)

    def make_scene(self) -> Scene:
        history = self.history
        now = self.host.now()
        if self.cursor is not None:
            self.cursor = history.clamp(self.cursor)
        view = history.live if self.cursor is None else history.view_at(self.cursor)
        speed = history.speed(now if self.host.alive and not view.paused else None)
        per_column = self._columns(speed[0])
        if self.cursor is not None and self.fixed_right is not None:  # fewer columns, or fewer steps in them
            span = max(1, self.timeline.columns() * per_column)
            if not self.fixed_right - span < self.cursor <= self.fixed_right:
                self.fixed_right = min(history.last_step, self.cursor + span // 2)
        history.fade = FADE_STEPS * per_column
        changed: set[int] | None = set(history.changed_blocks)
        history.changed_blocks.clear()
        if self.cursor is not None or self.scene is None or self.scene.cursor is not None or self._dirty:
            changed = None
        needle = self.timeline.filter
        if needle:
            ids = history.found(view, lambda request: matches(history, request, needle))
        else:
            ids = history.order(view, room=self.timeline.room)
        self.keep_selection(ids)
        flight = self.host.in_flight
        if flight is not None and (now - flight.since < LONG or self.cursor is not None):
            flight = None
        return Scene(
            history=history,
            view=view,
            look=self.app.look,  # type: ignore[attr-defined]
            cursor=self.cursor,
            selected=self.selected,
            ids=ids,
            per_column=per_column,
            now=now,
            changed=changed,
            fixed_right=self.fixed_right,
            speed=speed,
            cost=self._cost,
            in_flight=flight,
            pausing=self._asked_pause == (history.live.seq, True) and not history.live.paused,
            building=self._rebuilding is not None,
            ended=not self.host.alive,
            virtual=self.session.virtual,
            recording=self.recording_text(),
            replayed=self.session.progress.line(now) if self.session.progress is not None else "",
        )

    def _columns(self, speed: float) -> int:
        if self.per_column is not None:
            return self.per_column
        if self.cursor is not None:
            return self._auto_columns
        want = speed / STEPS_A_SECOND
        if want > self._auto_columns or want < 0.4 * self._auto_columns:
            self._auto_columns = next((n for n in PER_COLUMN if n >= want), PER_COLUMN[-1])
        return self._auto_columns

    def paint(self) -> None:
        if not self.is_mounted or self.board.size.area == 0:
            return
        self.scene = scene = self.make_scene()
        self._dirty = False
        arrangement = self.board.arrangement()
        self.query_one(Tabs).show(arrangement.tabs, arrangement.tab)
        self.query_one(Scrubber).window = self.timeline.window(scene)
        self.offer_keys()
        for panel in self.board.panels():
            panel.set_view(scene)
        if isinstance(self.app.screen, InspectScreen):
            self.app.screen.set_view(scene)

    def offer_keys(self) -> None:
        self.query_one(Keys).offer(self._entries())

    def _entries(self) -> tuple[footer.Entry, ...]:
        top = self.app.screen
        if top is not self:
            return getattr(top, "entries", footer.PALETTE)
        if self.board.form:
            return footer.FORM
        if self.focused is not None and self.focused.id == "knobs":
            return footer.KNOBS
        if self.cursor is not None:
            return footer.PAST
        return footer.WIDE if self.size.width >= 118 else footer.LIVE

    # ---- what the panels say ----------------------------------------------------------------------

    @on(Board.Changed)
    def _board_changed(self) -> None:
        if self.board.form and not self.board.wide:
            self.close_form()
            self.action_inject()
        focused = self.focused
        if isinstance(focused, Panel) and not focused.showing:
            self.timeline.focus()
        self.dirty()

    @on(Timeline.Selected)
    def _selected(self, message: Timeline.Selected) -> None:
        self._select(message.id)
        if message.again:
            self.action_inspect()

    @on(Timeline.Moved)
    def _moved(self, message: Timeline.Moved) -> None:
        self.action_select(message.rows)

    @on(Timeline.Seek)
    @on(Scrubber.Seek)
    def _seek(self, message: Timeline.Seek | Scrubber.Seek) -> None:
        self.look_at(message.step)

    @on(Scrubber.Nudge)
    def _nudge(self, message: Scrubber.Nudge) -> None:
        self.action_cursor(message.steps)

    @on(Tabs.Chosen)
    def _tab_chosen(self, message: Tabs.Chosen) -> None:
        self.focus_panel(message.tab)

    @on(Keys.Pressed)
    async def _key_pressed(self, message: Keys.Pressed) -> None:
        await self.run_action(message.action)

    @on(Knobs.Changed)
    def _knob_changed(self, message: Knobs.Changed) -> None:
        self.set_knob(message.name, message.value)

    @on(Knobs.Rebuild)
    def _rebuild_asked(self, message: Knobs.Rebuild) -> None:
        self.ask_rebuild(message.changes)

    @on(Knobs.Typing)
    def _knob_typed(self, message: Knobs.Typing) -> None:
        self.type_knob(message.name, message.value)

    @on(Knobs.Left)
    def _knobs_left(self) -> None:
        self.timeline.focus()

    @on(InjectForm.Typed)
    def _typed(self) -> None:
        for form in self.query(InjectForm):
            self.tell_fit(form)

    @on(InjectForm.Sent)
    def _sent(self, message: InjectForm.Sent) -> None:
        self.send(message.order, self.query_one(InjectForm))

    @on(InjectForm.Closed)
    def _form_closed(self) -> None:
        self.close_form()

    def say(self, text: str, *, bad: bool = False) -> None:
        """A notice for a few seconds."""
        self._notice_until = time.monotonic() + NOTICE_SECONDS
        self.status.say(text, bad=bad)

    def hush(self) -> None:
        """The notice is about something before what the person does now."""
        if self._notice_until:
            self._notice_until = 0.0
            self.status.say("")

    def noticing(self) -> bool:
        return self._notice_until > time.monotonic()
