"""The screen of a recording: the same panels as live, and a cursor that plays.

There is no engine: what would change one is refused in a line. The cursor is always at a step of the recording;
playing moves it by the recorded times, `speed` times as fast, and shortens gaps in which nothing ran.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from pathlib import Path

from engine.errors import WorkbenchError
from workbench.model.bookmarks import read_bookmarks, write_bookmarks
from workbench.model.history import History
from workbench.model.playback import Playback
from workbench.model.recorded_host import RecordedHost
from workbench.model.session import Session
from workbench.screens.live import FASTEST, LiveScreen
from workbench.text import clean
from workbench.widgets import footer
from workbench.widgets.panel import Scene

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0)
LONGEST_GAP = 1.0
"""Seconds of the person's time that a gap between two steps takes at most."""
MOST_COLUMNS = 16
"""Steps a column; more would load too much of the recording for one picture."""


class PlayScreen(LiveScreen):
    def __init__(self, session: Session, *, fps: int = FASTEST, speed: float = 1.0) -> None:
        assert session.recording is not None
        assert isinstance(session.host, RecordedHost)
        self.recording, self.recorded = session.recording, session.host
        super().__init__(session, fps=fps)
        self.cursor = self.recording.first_step
        self.playing = False
        self.speed = speed
        self._played = 0.0
        """Recorded time reached."""
        self._ticked = 0.0

    def make_history(self) -> History:
        return Playback(self.recording)

    @property
    def playback(self) -> Playback:
        assert isinstance(self.history, Playback)
        return self.history

    def on_mount(self) -> None:
        super().on_mount()
        self.status.hint = "space plays   , . < > steps   ( ) jumps, j chooses to what   t goes to a step   ? all keys"
        for note in self.recording.notes:
            self.say(note)
        try:
            kept = read_bookmarks(self.recorded_file())
        except WorkbenchError as error:
            self.say(clean(str(error)), bad=True)
        else:
            self.history.bookmarks = self.history.bookmarks if kept is None else kept

    def recorded_file(self) -> Path:
        return Path(self.recording.name)

    def keep_bookmark(self, step: int, text: str) -> None:
        try:
            write_bookmarks(self.recorded_file(), self.history.bookmarks)
        except WorkbenchError as error:
            self.say(clean(str(error)), bad=True)

    # ---- playing ----------------------------------------------------------------------------------

    def tick(self) -> None:
        now = time.monotonic()
        passed, self._ticked = now - self._ticked, now
        if self.playing:
            self._advance(min(passed, 0.5) * self.speed)
        super().tick()

    def _advance(self, passed: float) -> None:
        """Move the cursor by `passed` seconds of the recording."""
        recording, step = self.recording, self.cursor
        assert step is not None
        ends, first = recording.ends, recording.first_step
        self._played += passed
        following = step + 1 - first
        if following >= len(ends):
            self.playing = False
            self.say("end of the recording; home goes to its start")
            return
        gap = float(ends[following]) - self._played
        if gap > LONGEST_GAP * self.speed:
            self._played += gap - LONGEST_GAP * self.speed
        reached = first + bisect_right(ends, self._played, following) - 1
        if reached > step:
            self._stand(reached)

    def _stand(self, step: int) -> None:
        """Put the cursor there, in the picture."""
        self.cursor = step = self.history.clamp(step)
        self._frame(step)
        self.dirty()

    def _frame(self, step: int) -> None:
        """Move the picture as far as it takes for the step to be in it."""
        span = self._span()
        right = self.fixed_right
        least = min(self.history.last_step, self.history.first_step + span - 1)
        if right is None or right < least or not right - span < step <= right:
            ahead = 0 if self.playing or right is None or step == right + 1 else span // 4
            self.fixed_right = min(self.history.last_step, max(step + ahead, least))

    def _span(self) -> int:
        """Steps that the timeline shows."""
        return max(1, self.timeline.columns() * self._columns(0.0))

    def make_scene(self) -> Scene:
        step = self.cursor
        assert step is not None
        self._frame(self.history.clamp(step))
        right = self.fixed_right or step
        self.playback.show(step, right - self._span() + 1, right)
        self.recorded.time = float(self.recording.ends[self.history.clamp(step) - self.recording.first_step])
        scene = super().make_scene()
        scene.view = self.history.live
        scene.ended = False
        scene.playing = f"▸ PLAY {self.speed:g}x" if self.playing else "‖ RECORDING"
        return scene

    def _columns(self, speed: float) -> int:
        return 1 if self.per_column is None else min(self.per_column, MOST_COLUMNS)

    def _entries(self) -> tuple[footer.Entry, ...]:
        entries = super()._entries()
        if entries is not footer.PAST:
            return entries
        return footer.PLAYING if self.playing else footer.RECORDED

    # ---- keys -------------------------------------------------------------------------------------

    def _ended(self) -> bool:
        self.say("this is a recording: nothing in it can be changed", bad=True)
        return True

    def look_at(self, step: int | None) -> None:
        self.hush()
        self.playing = False
        self._stand(self.history.last_step if step is None else step)

    def action_cursor(self, steps: int) -> None:
        assert self.cursor is not None
        self.look_at(self.cursor + steps)

    def action_steps(self, steps: int) -> None:
        self.action_cursor(steps)

    def action_leave(self) -> None:
        if self.board.zoomed or self.timeline.filter:
            super().action_leave()
        else:
            self.timeline.focus()

    def action_pause(self) -> None:
        assert self.cursor is not None
        self.playing = not self.playing
        if self.playing and self.cursor >= self.history.last_step:
            self.look_at(self.history.first_step)
            self.playing = True
        self._ticked = time.monotonic()
        self._played = float(self.recording.ends[self.cursor - self.recording.first_step])
        self.say(f"playing at {self.speed:g}x" if self.playing else "stopped")
        self.dirty()

    def action_pace(self, direction: int) -> None:
        at = bisect_right(SPEEDS, self.speed) if direction > 0 else bisect_left(SPEEDS, self.speed) - 1
        self.speed = SPEEDS[max(0, min(len(SPEEDS) - 1, at))]
        self.say(f"{self.speed:g}x the recorded speed")
        self.dirty()
