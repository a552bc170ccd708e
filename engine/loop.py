"""`EngineThread`: an engine in a thread of its own.

Others reach it through its inbox; commands apply between iterations, in the order posted. Records go out through a
deque that the reader empties when it likes: a slow reader costs the engine nothing. A fault ends the thread with a
last record that carries the traceback; nothing is printed and nothing hangs.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import traceback
from collections import deque
from typing import Any

from engine.clock import RealClock, VirtualClock
from engine.commands import Abort, Command, Observe, Pause, Rebuild, Resume, RunSteps, SetKnob, SetPace, Stop, Submit
from engine.engine import Engine
from engine.errors import WorkbenchError
from engine.host import EngineInfo, InFlight, Observer, Rebuilder
from engine.records import Iteration
from engine.request import Request

LONGEST_WAIT_S = 3600.0
"""No single wait is longer: the standard library's timers overflow at a few centuries."""
THREAD_NAME = "engine"
STALLED_S = 0.05
"""How long to wait for a command when requests wait but nothing could be scheduled."""


class EngineThread:
    """See `EngineHost`. Starts unpaused; `post(Pause())` before `start()` to begin paused."""

    def __init__(self, engine: Engine, info: EngineInfo, rebuilder: Rebuilder | None = None) -> None:
        """rebuilder: who builds another engine for `Rebuild`; None refuses it."""
        self._engine = engine
        self._info = info
        self._rebuilder = rebuilder
        self._inbox: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._records: deque[Iteration] = deque()
        self._stopping = False
        self._steps_left: int | None = None
        self._not_before = 0.0
        self._wall = RealClock()
        """The pace is one for people to watch, whatever clock the engine has."""
        self._observer: Observer | None = None
        self._handover = threading.Lock()
        self._kept: list[list[Iteration]] = []
        """For everybody who asked to observe and has not begun: the records drained since then."""
        self._thread = threading.Thread(target=self._main, name=THREAD_NAME, daemon=True)

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def in_flight(self) -> InFlight | None:
        return self._engine.in_flight

    def start(self) -> None:
        self._thread.start()

    def post(self, command: Command) -> None:
        self._inbox.put(command)

    def drain(self, limit: int | None = None) -> list[Iteration]:
        records = self._records
        out: list[Iteration] = []
        with self._handover:
            while records and (limit is None or len(out) < limit):
                out.append(records.popleft())
            for kept in self._kept:
                kept += out
        return out

    def observe(self, observer: Observer | None) -> None:
        kept: list[Iteration] = []
        with self._handover:
            self._kept.append(kept)
        self._inbox.put(Observe(observer, kept))

    def now(self) -> float:
        return self._engine.clock.now()

    def stop(self, timeout: float = 1.0) -> bool:
        self._stopping = True
        self._inbox.put(Stop())
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    # ---- in the engine's thread -------------------------------------------------------------------

    def _main(self) -> None:
        try:
            self._run()
        except BaseException:
            trace = traceback.format_exc()
            self._publish(self._engine.fault_record(trace, self._unread()))
        finally:
            if self._observer is not None:
                with contextlib.suppress(Exception):  # nobody is left to be told
                    self._observer.close()

    def _publish(self, record: Iteration) -> None:
        self._records.append(record)
        self._show(record)

    def _show(self, record: Iteration) -> None:
        observer = self._observer
        if observer is None:
            return
        try:
            observer.add(record)
        except Exception as error:
            self._observer = None
            self._complain(error)
            with contextlib.suppress(Exception):
                observer.close()

    def _complain(self, error: Exception) -> None:
        what = str(error) if isinstance(error, WorkbenchError) else f"{type(error).__name__}: {error}"
        self._engine.notice(f"records are no longer written: {what}")

    def _observe(self, observer: Observer | None, drained: list[Iteration]) -> None:
        """Let the old one go, show the new one what was made since he was asked for."""
        if self._observer is not None:
            try:
                self._observer.close()
            except Exception as error:
                self._complain(error)
        self._observer = observer
        with self._handover:
            missed = [*drained, *self._records]
            self._kept = [kept for kept in self._kept if kept is not drained]
        for record in missed:
            self._show(record)

    def _unread(self) -> list[Request]:
        """Requests posted but not yet looked at."""
        requests: list[Request] = []
        while True:
            try:
                command = self._inbox.get_nowait()
            except queue.Empty:
                return requests
            if isinstance(command, Submit):
                requests += command.requests
            elif isinstance(command, Observe):
                self._observe(command.observer, command.drained)

    def _run(self) -> None:
        engine = self._engine
        while True:
            self._apply_waiting()
            if self._stopping:
                return
            begun = self._wall.now()
            wait = self._not_before - begun
            runnable = not engine.paused and (engine.pace is None or wait <= 0)
            record = engine.step(run=runnable)
            if record is not None:
                self._publish(record)
                if record.executed:
                    self._not_before = begun + 1 / engine.pace if engine.pace else 0.0
                    self._count_down()
                continue
            if not self._jump(runnable):
                self._wait(self._patience(runnable, wait))

    def _jump(self, runnable: bool) -> bool:
        """Virtual time passes at once to the next event, if there is one to come."""
        engine = self._engine
        if not runnable or not isinstance(engine.clock, VirtualClock):
            return False
        event = engine.next_event()
        if event is None or event <= engine.clock.now():
            return False
        engine.clock.advance_to(event)
        return True

    def _count_down(self) -> None:
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left == 0:
                self._steps_left = None
                self._engine.paused = True

    def _patience(self, runnable: bool, pace_wait: float) -> float | None:
        """Seconds until something could happen by itself; None when only a command can wake the engine."""
        engine = self._engine
        times = []
        event = None if isinstance(engine.clock, VirtualClock) else engine.next_event()
        if event is not None:
            times.append(event - engine.clock.now())
        if not engine.paused and engine.scheduler.requests:
            times.append(STALLED_S if runnable else pace_wait)
        return max(0.0, min(*times, LONGEST_WAIT_S)) if times else None

    def _rebuild(self, changes: dict[str, Any]) -> None:
        engine, start = self._engine, self._info.config.values()
        if self._rebuilder is None:
            engine.notice(f"refused {', '.join(changes)}: this engine cannot be built anew")
            return
        turned = {name: value for name, value in engine.config.values().items() if value != start[name]}
        # A pool made smaller for the moment keeps its memory: it is allocated as before and made smaller again.
        smaller = None if "num_blocks" in changes else turned.pop("num_blocks", None)
        try:
            new, info, reencode = self._rebuilder({**turned, **changes})
        except WorkbenchError as error:
            engine.notice(f"refused {error}")
            return
        engine.rebuild(new, info.model, info.dtype, reencode)
        self._info = info
        if smaller is not None:
            engine.try_knob("num_blocks", smaller)

    def _wait(self, timeout: float | None) -> None:
        try:
            self._apply(self._inbox.get(timeout=timeout))
        except queue.Empty:
            return

    def _apply_waiting(self) -> None:
        while not self._stopping:
            try:
                self._apply(self._inbox.get_nowait())
            except queue.Empty:
                return

    def _apply(self, command: Command) -> None:
        engine = self._engine
        match command:
            case Submit(requests):
                for request in requests:
                    engine.submit(request)
            case Abort(id):
                engine.abort(id)
            case SetKnob(name, value):
                engine.try_knob(name, value)
            case Rebuild(changes):
                self._rebuild(changes)
            case Pause():
                engine.paused, self._steps_left = True, None
            case Resume():
                engine.paused, self._steps_left = False, None
            case RunSteps(steps):
                if steps > 0:
                    engine.paused, self._steps_left = False, steps
            case SetPace(per_second):
                if per_second is not None and not per_second > 0:
                    engine.notice(f"refused pace {per_second}: must be above 0, or none for no limit")
                else:
                    engine.pace, self._not_before = per_second, 0.0
            case Observe(observer, drained):
                self._observe(observer, drained)
            case Stop():
                self._stopping = True
