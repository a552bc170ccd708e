"""`Playback`: a recording as a history, of which only a window is in memory.

The panels read the same things as of a live history. Steps are those of the whole recording; rows, series and events
are those of the window, which follows what is looked at. `live` is the state at the step shown: to a person that is
where the recording stands.

Latencies and speeds are those of the steps first..step: not of what else is loaded, and nothing of the future.
Invariant: after `show(step, first)` everything about the steps first..step is here, if the recording has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from engine.host import EngineInfo
from engine.records import Iteration
from engine.view import EngineView
from workbench.model.build import Build
from workbench.model.history import MOST_WAITING, History
from workbench.model.latency import Latency

AHEAD = 64
"""Steps loaded at once when what follows the window is needed: playing on must not load at every step."""
MOST_WINDOW = 4096
KEPT = MOST_WINDOW + 2 * AHEAD
"""Steps in memory, at the least: what goes on at the right must not push out what is shown."""


class Recorded(Protocol):
    """What is asked of a recording."""

    @property
    def name(self) -> str:
        """Its file."""
        ...

    @property
    def info(self) -> EngineInfo: ...

    @property
    def first_step(self) -> int: ...

    @property
    def last_step(self) -> int: ...

    @property
    def marks(self) -> npt.NDArray[np.uint8]:
        """Bits of `traces.recording.marks`, from the first step on."""
        ...

    def window(self, first_step: int, last_step: int) -> tuple[EngineView, list[Iteration]]:
        """A state, and all records from there up to that of `last_step`; the state is from before `first_step`."""
        ...

    def iterations(self, first_seq: int = 0, stop: int | None = None) -> Iterator[Iteration]: ...

    @property
    def ends(self) -> npt.NDArray[np.float64]:
        """When each step ended, on the engine's clock, from the first step on."""
        ...

    @property
    def bookmarks(self) -> Sequence[tuple[int, str]]:
        """(step, text)"""
        ...

    def number_of(self, view: EngineView, id: str) -> int | None:
        """Place of a request of one of its views in the order of all arrivals; None: not known."""
        ...

    @property
    def notes(self) -> Sequence[str]:
        """What is wrong with it, a line each."""
        ...


class Playback(History):
    def __init__(self, recording: Recorded) -> None:
        info = recording.info
        config = info.config
        self.recording = recording
        self._shown: EngineView | None = None
        self._from = 0
        """First step of the picture."""
        super().__init__(
            config.num_blocks, config.block_size, config.values(), KEPT, model=info.model, dtype=info.dtype
        )
        self._first_build = self.builds[0]
        self.bookmarks = dict(recording.bookmarks)

    # ---- the window -------------------------------------------------------------------------------

    def show(self, step: int, first: int, last: int) -> None:
        """Stand at `step`, with everything from step `first` to step `last` (both near it) at hand."""
        step = self.clamp(step)
        first = max(self.first_step, min(first, step), step - MOST_WINDOW // 2)
        last = min(self.last_step, max(last, step), step + MOST_WINDOW // 2)
        oldest = max(self._seqs.first, self._first_kept())
        if not self._seqs or first < oldest or step > self._seqs.end + AHEAD:
            self._load(first, last)
        elif last >= self._seqs.end:
            self._extend(last + AHEAD)
        if last == self.last_step:
            self._extend(last)
        self._look(step, first)
        self.version += 1

    def _look(self, step: int, first: int) -> None:
        """Make the state at a step, and the latencies of the steps `first` to `step`."""
        before = int(self._seqs[first]) - 1
        view = (self._chunks[0].view if self._chunks[0].view.seq >= before else self._view_after(before)).copy()
        latency = Latency()
        for id in (*view.running, *view.swapped, *view.waiting_ids(MOST_WAITING)):
            times = view.requests[id].token_times
            if times:
                latency.adopt(id, times[-1])
        # the records after the last step (aborts of the end, a fault) belong to its picture
        last = self._tip.seq if step == self.last_step else int(self._seqs[step])
        while view.seq < last:
            it = self._record(view.seq + 1)
            assert it is not None
            view.apply(it)
            latency.fold(it, view)
        for id in view.waiting_ids(MOST_WAITING):
            self._row(id)
        self.latency, self._shown, self._from = latency, view, first

    def _load(self, first: int, last: int) -> None:
        view, records = self.recording.window(first, last)
        self._begin(view, Build(0, view.model, view.dtype) if view.model else self._first_build)
        for it in records:
            self.append(it)
        self.changed_blocks = set(range(self._tip.num_blocks))

    def _extend(self, last: int) -> None:
        """Take in what follows, to the records after step `last` where it is the recording's last one."""
        for it in self.recording.iterations(self._tip.seq + 1):
            if it.executed and it.step > last:
                break
            self.append(it)

    # ---- reading ----------------------------------------------------------------------------------

    def number_of(self, id: str) -> int | None:
        return self.recording.number_of(self._tip, id)

    @property
    def live(self) -> EngineView:
        return self._tip if self._shown is None else self._shown

    @property
    def first_step(self) -> int:
        return self.recording.first_step

    @property
    def last_step(self) -> int:
        return self.recording.last_step

    @property
    def counted(self) -> tuple[int, int] | None:
        return self._from, self.live.step

    def record_at(self, step: int) -> Iteration | None:
        if not self._seqs or not self._seqs.first <= step < self._seqs.end:
            return None
        return self._record(int(self._seqs[step]))

    def marks_between(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        first = self.first_step
        return self.recording.marks[max(0, start - first) : max(0, stop - first)]

    def speed(self, now: float | None = None) -> tuple[float, float]:
        """At the step shown, by the clock of the recording."""
        step = self.live.step
        if step not in range(self._seqs.first, self._seqs.end):
            return 0.0, 0.0
        return self.speed_until(step, most=step - self._from)
