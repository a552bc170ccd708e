"""Where ( and ) can lead: kinds of steps worth looking at. One list for keys, palette and messages."""

from __future__ import annotations

from typing import NamedTuple

from traces.recording.marks import Mark
from workbench.model.history import History


class Jump(NamedTuple):
    word: str
    words: str
    mark: Mark | None
    """None: a person's own bookmarks."""

    def find(self, history: History, step: int, direction: int) -> int | None:
        """The nearest such step before (-1) or after (1) `step`."""
        if self.mark is not None:
            return history.next_mark(step, direction, self.mark)
        steps = sorted(history.bookmarks)
        if direction > 0:
            return next((at for at in steps if at > step), None)
        return next((at for at in reversed(steps) if at < step), None)


JUMPS = (
    Jump("preemption", "preemptions", Mark.PREEMPTION),
    Jump("finish", "finishes", Mark.FINISH),
    Jump("knob change", "knob changes", Mark.KNOB),
    Jump("slow iteration", "slow iterations", Mark.SLOW),
    Jump("bookmark", "bookmarks", None),
)
