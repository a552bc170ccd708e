"""The newest iterations of an engine, and its state after any of them.

`append` takes every record once, in order. The records stay in chunks of at most CHUNK, each with a copy of the
state before its first record, so the state after a step is at most CHUNK records away. What the panels draw for
each step (cells, tokens, marks) is packed in bytes and arrays beside them.

Omission: a history holds about KEEP_STEPS steps; older ones can be seen in a recording only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from engine.knobs import KnobValue
from engine.records import Iteration, Kind, KnobChange, Limit, Phase, Preempted
from engine.request import FinishReason, RequestStatus
from engine.view import EngineView, RequestView
from traces.recording.marks import Marks
from workbench.model.batch import held
from workbench.model.build import Build
from workbench.model.cells import Cell, prefill_cell
from workbench.model.events import Event, cut_short, events_of
from workbench.model.latency import Latency
from workbench.model.letters import Letters
from workbench.model.row import MOST_PREEMPTED, Row
from workbench.model.series import Series

KEEP_STEPS = 4096
KEEP_EVENTS = 4000
CHUNK = 64
BIG_POOL = 16384
"""Above this many blocks the copies are made less often: one of 16k blocks takes 0.4 MB."""
LIMIT_WINDOW = 64
FADE_STEPS = 20
SPARE_LETTERS = 20
"""Of those that wait already, so many letters are kept for requests that are admitted soon."""
MOST_WAITING = 256
"""Rows of waiting requests that are offered; the rest are counted."""
MOST_BEFORE = 1000
"""Records a recording that begins late still takes in: more would hold up the screen."""
RATE_WINDOW = 2.0
"""Seconds over which speeds are taken."""


class _Chunk:
    __slots__ = ("executed", "records", "view")

    def __init__(self, view: EngineView) -> None:
        self.view = view
        """The state before the first record."""
        self.records: list[Iteration] = []
        self.executed = 0


class History:
    def __init__(
        self,
        num_blocks: int,
        block_size: int,
        knobs: dict[str, KnobValue],
        keep: int = KEEP_STEPS,
        *,
        model: str = "",
        dtype: str = "",
    ) -> None:
        self._keep = keep
        self.fade = FADE_STEPS
        """Steps for which a finished request keeps its row and letter."""
        self.version = 0
        """Grows with every record."""
        self.bookmarks: dict[int, str] = {}
        """A person's notes, by step."""
        self._begin(EngineView(num_blocks, block_size, knobs), Build(0, model, dtype))

    def _begin(self, view: EngineView, build: Build) -> None:
        """Forget everything; the next record is the one after `view`, which is taken over."""
        keep = self._keep
        self._tip = view
        """After the newest record."""
        self.letters = Letters(self.number_of)
        self.latency = Latency()
        self.rows: dict[str, Row] = {}
        self.events: deque[Event] = deque(maxlen=KEEP_EVENTS)
        self.knob_changes: deque[tuple[int, KnobChange]] = deque(maxlen=256)
        """With the step at which each took effect, oldest first."""
        self.builds = [build]
        """Oldest first; more than one once the engine was built anew."""
        self.ever_swapped = self.ever_cut = False
        self.changed_blocks: set[int] = set()
        """Blocks that changed since somebody emptied this set."""
        self.decode = Series("l", keep)
        self.prefill = Series("l", keep)
        self.recompute = Series("l", keep)
        self.budget = Series("l", keep)
        self.outputs = Series("l", keep)
        self.ends = Series("d", keep)
        self.marks = Series("B", keep)
        """Bits of `Mark`."""
        self._marker = Marks()
        self._seqs = Series("q", keep)
        self._chunk_size = _chunk_size(view.num_blocks)
        self._chunks: deque[_Chunk] = deque()
        self._executed = 0
        self._records = 0
        self._limits: deque[Limit] = deque(maxlen=LIMIT_WINDOW)
        self._finished: list[tuple[int, str]] = []
        self._handed_back = 0
        self._admissions = 0
        self._held: set[str] = set()
        """Ended members of the static batch that runs."""
        self._past: EngineView | None = None
        self._adopt(view)

    def _adopt(self, view: EngineView) -> None:
        """Rows, letters and latencies of the requests that are there already, but for those far back in the queue."""
        self._begun = view.step + 1
        waiting = view.waiting_ids(MOST_WAITING)
        for id in (*view.running, *view.swapped, *waiting):
            row, request = self._row(id), view.requests[id]
            if request.status is RequestStatus.SWAPPED:  # some policies keep them among the waiting ones
                row.idle = Cell.SWAPPED
            if request.first_scheduled is not None:
                row.admitted, self._admissions = self._admissions, self._admissions + 1
            if request.token_times:
                self.latency.adopt(id, request.token_times[-1])
        for id in (*view.running, *view.swapped):
            self.letters.give(id)
        for id in waiting:
            if id not in view.swapped and self.letters.left > SPARE_LETTERS:
                self.letters.give(id)

    def _row(self, id: str) -> Row:
        """Of a request; one that was far back in the queue when this history began gets it when it comes up."""
        row = self.rows.get(id)
        if row is None:
            row = self.rows[id] = Row(id, self._begun, self._keep)
        return row

    # ---- growing ----------------------------------------------------------------------------------

    def append(self, it: Iteration) -> None:
        if not self._chunks or len(self._chunks[-1].records) >= self._chunk_size:
            self._chunks.append(_Chunk(self._tip.copy()))
        chunk = self._chunks[-1]
        for arrived in it.arrived:
            self.rows[arrived.id] = Row(arrived.id, it.step + (0 if it.executed else 1), self._keep)
        batch, storm = self._tip.batch, self._tip.storm
        view = self._tip.apply(it)
        for arrived in it.arrived:
            self.letters.give(arrived.id)
        chunk.records.append(it)
        self._records += 1
        self.version += 1
        bits = self._marker.add(it).bits
        self._cells(it)
        for change in it.knobs:
            self.knob_changes.append((it.step, change))
        self.events.extend(events_of(it, view, self.letters.name, batch, storm))
        self.latency.fold(it, view)
        self.changed_blocks.update(change.block for change in it.blocks)
        if it.rebuilt is not None:
            self._chunk_size = _chunk_size(view.num_blocks)
            self.changed_blocks = set(range(view.num_blocks))
            first = it.step + (0 if it.executed else 1)
            self.builds.append(Build(first, it.rebuilt.model, it.rebuilt.dtype))
        if it.executed:
            chunk.executed += 1
            self._executed += 1
            self._count(it)
            self._mark(it.step, bits)
        elif self.marks and bits:
            self._mark(self.marks.end - 1, bits)
        self._forget(it.step)

    def _cells(self, it: Iteration) -> None:
        step = it.step
        for item in it.scheduled:
            row = self._row(item.id)
            if row.admitted is None:
                row.admitted = self._admissions
                self._admissions += 1
                self.letters.promote(item.id)
            if item.kind is Kind.SWAPPED_IN:
                code = Cell.SWAP_IN
            elif item.phase is Phase.DECODE:
                code = Cell.DECODE
            elif item.phase is Phase.RECOMPUTE:
                code = Cell.RECOMPUTE
            else:
                code = prefill_cell(item.num_tokens, it.budget)
            row.put(step, code)
            row.idle = Cell.WAIT
        for victim in it.preempted:
            row, swapped = self._row(victim.id), victim.swapped_blocks > 0
            row.put(step, Cell.SWAP_OUT if swapped else Cell.PREEMPTED)
            row.idle = Cell.SWAPPED if swapped else Cell.WAIT
            row.preempted.append((step, victim))
            del row.preempted[:-MOST_PREEMPTED]
            self.ever_swapped |= swapped
        for done in it.finished:
            row = self._row(done.id)
            bad = done.reason in (FinishReason.ABORT, FinishReason.ERROR)
            cut = not bad and cut_short(self._tip.requests.get(done.id))
            row.put(step, Cell.ABORTED if bad else Cell.CUT if cut else Cell.FINISHED)
            self.ever_cut |= cut
            row.idle = Cell.BLANK
            self._finished.append((step, done.id))
        if it.batch or self._held:
            self._hold(it)

    def _hold(self, it: Iteration) -> None:
        """Ended members of the static batch keep their slots until its last one has ended."""
        now = set(held(self._tip))
        for id in now - self._held:
            self.rows[id].idle = Cell.HELD
        # the step in which the last one ends is one of the batch; one with another batch is not
        last = it.step if self._held.issubset(it.batch) else it.step - it.executed
        for id in self._held - now:
            if id in self.rows:
                self.rows[id].rest(last, Cell.BLANK)
        self._held = now

    def _count(self, it: Iteration) -> None:
        step = it.step
        decode = it.tokens_in(Phase.DECODE)
        recompute = it.tokens_in(Phase.RECOMPUTE)
        self.decode.append(step, decode)
        self.recompute.append(step, recompute)
        self.prefill.append(step, it.total_tokens - decode - recompute)
        self.budget.append(step, it.budget)
        self.outputs.append(step, len(it.tokens))
        self.ends.append(step, it.t_end)
        self._seqs.append(step, it.seq)
        self.marks.append(step, 0)
        self._limits.append(it.limit)

    def _mark(self, step: int, bits: int) -> None:
        self.marks.replace(step, int(self.marks[step]) | bits)

    def _forget(self, step: int) -> None:
        while self._handed_back < len(self._finished):
            ended, id = self._finished[self._handed_back]
            if ended + self.fade >= step or id in self._held:
                break
            self.letters.give_back(id)
            self._handed_back += 1
        while len(self._chunks) > 1:
            oldest = self._chunks[0]
            # records that ran nothing (commands to a paused engine) must not pile up either
            if self._executed - oldest.executed < self._keep and self._records < 4 * self._keep:
                break
            self._executed -= oldest.executed
            self._records -= len(oldest.records)
            self._chunks.popleft()
        gone = bisect_left(self._finished, (self.first_step, ""))
        gone = min(gone, self._handed_back)
        if gone > 512:
            for _, id in self._finished[:gone]:
                self.rows.pop(id, None)
                self.letters.forget(id)
            del self._finished[:gone]
            self._handed_back -= gone

    # ---- reading ----------------------------------------------------------------------------------

    def number_of(self, id: str) -> int | None:
        """Place of a request in the order of all arrivals, where that is known."""
        return None

    @property
    def live(self) -> EngineView:
        """The state now."""
        return self._tip

    @property
    def first_step(self) -> int:
        """Oldest step that can be shown again; last_step when there is none."""
        if not self._seqs:
            return self._tip.step
        return max(self._seqs.first, self._first_kept())

    def _first_kept(self) -> int:
        for chunk in self._chunks:
            for it in chunk.records:
                if it.executed:
                    return it.step
        return self._tip.step

    @property
    def last_step(self) -> int:
        return self._seqs.end - 1 if self._seqs else self._tip.step

    def from_the_beginning(self) -> list[Iteration] | None:
        """All records of the run, where they are few and none was forgotten."""
        if not self._chunks or self._chunks[0].view.seq >= 0 or self._records > MOST_BEFORE:
            return None
        return [it for chunk in self._chunks for it in chunk.records]

    @property
    def counted(self) -> tuple[int, int] | None:
        """First and last step whose latencies count, where those are not all of the run up to now."""
        return None

    def clamp(self, step: int) -> int:
        return max(self.first_step, min(step, self.last_step))

    def record_at(self, step: int) -> Iteration | None:
        """The record of an executed step, None when it is not (or no longer) here."""
        if not self._seqs or not self.first_step <= step <= self.last_step:
            return None
        return self._record(int(self._seqs[step]))

    def _record(self, seq: int) -> Iteration | None:
        for chunk in reversed(self._chunks):
            first = chunk.view.seq + 1
            if seq >= first:
                return chunk.records[seq - first] if seq - first < len(chunk.records) else None
        return None

    def view_at(self, step: int) -> EngineView:
        """The state after an executed step. Valid until the next call; not to be changed or kept."""
        if not self._seqs:
            return self._tip
        return self._view_after(int(self._seqs[self.clamp(step)]))

    def _view_after(self, seq: int) -> EngineView:
        """The same after any record that is here."""
        start = next(chunk for chunk in reversed(self._chunks) if chunk.view.seq < seq)
        past = self._past
        if past is None or not start.view.seq <= past.seq <= seq:
            past = start.view.copy()
        while past.seq < seq:
            it = self._record(past.seq + 1)
            assert it is not None
            past.apply(it)
        self._past = past
        return past

    def order(self, view: EngineView, most_waiting: int = MOST_WAITING, room: int = 0) -> list[str]:
        """Ids of the rows to show: admitted ones and those just finished by admission, swapped out ones, waiting ones.

        Members of a static batch stay until all of it has ended.
        Requests that finished longer ago stay while the rows do not fill `room`, unless their letter has gone on.
        """
        waiting = [*view.swapped, *view.waiting_ids(most_waiting)]
        ids = list(view.running)
        stop = bisect_right(self._finished, (view.step, "\U0010ffff"))
        start = bisect_left(self._finished, (view.step - self.fade + 1, ""))
        ids += [id for _, id in self._finished[start:stop] if id in view.requests]
        shown = set(ids)
        ids += [id for id in held(view) if id not in shown and id in self.rows]
        if len(ids) + len(waiting) < room:
            taken = {self.letters.of(id) for id in (*ids, *waiting)}
            for _, id in reversed(self._finished[:start]):
                letter = self.letters.of(id)
                if id not in view.requests or letter in taken:
                    continue
                taken.add(letter)
                ids.append(id)
                if len(ids) + len(waiting) >= room:
                    break
        ids.sort(key=self._admission)
        return ids + waiting

    def found(self, view: EngineView, passes: Callable[[RequestView], bool]) -> list[str]:
        """Every request still known that passes, finished ones too, in the order of `order`."""
        ids = [id for id, request in view.requests.items() if id in self.rows and passes(request)]
        waiting = {*view.swapped, *view.waiting_ids()}
        return sorted((id for id in ids if id not in waiting), key=self._admission) + [
            id for id in ids if id in waiting
        ]

    def _admission(self, id: str) -> int:
        row = self.rows.get(id)
        return row.admitted if row is not None and row.admitted is not None else 1 << 60

    def build_at(self, step: int) -> Build:
        return next((build for build in reversed(self.builds) if build.step <= step), self.builds[0])

    def preemptions_of(self, id: str, step: int) -> list[tuple[int, Preempted]]:
        """The newest preemptions of a request up to a step, oldest first."""
        row = self.rows.get(id)
        return [entry for entry in row.preempted if entry[0] <= step] if row is not None else []

    def limit_shares(self, step: int | None = None) -> tuple[int, list[tuple[Limit, float]]]:
        """How many of the last LIMIT_WINDOW steps, and the share bound by each limit, largest first."""
        limits: list[Limit] = list(self._limits)
        if step is not None:
            records = (self.record_at(s) for s in range(step - LIMIT_WINDOW + 1, step + 1))
            limits = [it.limit for it in records if it is not None]
        return len(limits), [(limit, count / len(limits)) for limit, count in Counter(limits).most_common()]

    def marks_between(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        """Bits of the steps start..stop-1 that are still known."""
        return np.frombuffer(self.marks.between(start, stop), np.uint8)

    def next_mark(self, step: int, direction: int, mark: int) -> int | None:
        """The nearest marked step before (-1) or after (1) a step."""
        first, last = self.first_step, self.last_step
        start = max(step + 1, first)
        if direction > 0:
            found = np.flatnonzero(self.marks_between(start, last + 1) & mark)
            return start + int(found[0]) if len(found) else None
        found = np.flatnonzero(self.marks_between(first, min(step, last + 1)) & mark)
        return first + int(found[-1]) if len(found) else None

    def speed(self, now: float | None = None) -> tuple[float, float]:
        """Iterations and output tokens a second over the last RATE_WINDOW seconds before `now`."""
        return self.speed_until(self.ends.end - 1, now)

    def speed_until(self, step: int, now: float | None = None, most: int = 4096) -> tuple[float, float]:
        """The same before the end of a step, or before `now` where that is later; over `most` steps at most."""
        if step <= self.ends.first:
            return 0.0, 0.0
        newest = self.ends[step]
        until = newest if now is None else max(now, newest)
        first = step
        oldest = max(self.ends.first, first - most)
        while first > oldest and self.ends[first - 1] >= until - RATE_WINDOW:
            first -= 1
        steps = step + 1 - first
        if until - newest > RATE_WINDOW or steps < 2:
            return 0.0, 0.0
        # count the gaps between ends, so that a young or steady run is not overrated by its first step
        span = until - self.ends[first]
        if span <= 0:
            return 0.0, 0.0
        tokens = sum(self.outputs.between(first + 1, step + 1))
        return (steps - 1) / span, tokens / span


def _chunk_size(num_blocks: int) -> int:
    return CHUNK * max(1, -(-num_blocks // BIG_POOL))
