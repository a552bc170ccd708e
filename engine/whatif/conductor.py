"""`Conductor`: drives any engine by the commands of a journal, to the letter first and by the clock from then on.

Up to the fork every command comes before the very record that followed it, at that record's start time, and what the
scheduler decides must be what was decided then. After it requests arrive when they were planned to, aborts and knob
changes come at the time they came. Being paused, or held at a pace, is repeated before the fork and forgotten after it:
it says how a person watched, not what the engine was asked to do.
Omission: what led to no command that was obeyed (refused requests and knob values, notices) is not repeated, so records
that told of nothing else have no counterpart.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import NamedTuple

from engine.engine import Engine
from engine.errors import ForkError
from engine.records import Iteration
from engine.request import Request
from engine.whatif.clocks import MovedClock
from engine.whatif.journal import Commands, Journal, Life, check_sum

STUCK = 1000
"""Tries in a row without an executed iteration after which a future is given up."""
TICK = 1e-6
"""Time always goes on, even if what is waited for should have happened by now."""


class _Due(NamedTuple):
    """Something to be asked of the engine at a time."""

    time: float
    order: int
    ask: Callable[[], None]


class Conductor:
    def __init__(
        self,
        journal: Journal,
        engine: Engine,
        clock: MovedClock,
        request_of: Callable[[Life], Request],
        skip_knobs: Collection[str] = (),
    ) -> None:
        """skip_knobs: recorded changes of these knobs are not made."""
        self.journal = journal
        self.engine = engine
        self.clock = clock
        self.request_of = request_of
        self.skip_knobs = frozenset(skip_knobs)
        self.notes: list[str] = []
        """What a person should know about the future, one line each."""

    # ---- before the fork --------------------------------------------------------------------------

    def repeat(self, at_step: int, before: Callable[[int], None] | None = None) -> Iterator[Iteration]:
        """Run every record that comes before iteration `at_step` + 1. `before` is told each record number.

        ForkError at the first record that cannot be repeated. Afterwards it is the time at which that iteration began,
        or at which the recording ended.
        """
        journal, engine, clock = self.journal, self.engine, self.clock
        end = journal.prefix(at_step)
        for seq in range(end):
            clock.jump(journal.starts[seq])
            commands = journal.commands.get(seq)
            if commands is not None:
                self._obey(commands, seq)
            engine.seq = seq
            if before is not None:
                before(seq)
            asked = journal.asked[seq]
            record = engine.step(run=asked > 0)
            if record is None and asked == 2:
                record = engine.step()  # a call without an answer leaves no record, but may clear the way
            # One without an answer may have told of a refusal or a plan, which is not repeated: none comes now.
            repeated = asked < 2 if record is None else not asked or check_sum(record) == journal.sums[seq]
            if not repeated:
                raise ForkError(
                    f"iteration {engine.step_count} (record {seq}) cannot be repeated from the recording: the "
                    "scheduler decides otherwise now"
                )
            if record is not None:
                yield record
        engine.seq = end
        self.wait_for(at_step)

    def wait_for(self, at_step: int) -> None:
        """Make it the time at which iteration `at_step` + 1 began."""
        journal, at = self.journal, self.journal.prefix(at_step)
        self.clock.jump(journal.starts[at] if at < journal.num_records else journal.ends[-1] if at else 0.0)

    def _obey(self, commands: Commands, seq: int) -> None:
        engine = self.engine
        if commands.rebuilt is not None:
            raise ForkError(f"the engine was built anew at record {seq}: what-if reaches only up to there")
        engine.paused, engine.pace = commands.paused, commands.pace
        for change in commands.knobs:
            if change.name not in self.skip_knobs:
                engine.set_knob(change.name, change.new)
        arrivals = deque(commands.arrived)
        for id, detail in commands.aborted:
            if any(life.arrived.id == id for life in arrivals):
                while arrivals[0].arrived.id != id:
                    engine.submit(self.request_of(arrivals.popleft()), accepted=True)
                engine.submit(self.request_of(arrivals.popleft()), accepted=True)
            engine.abort(id, detail)
        for life in arrivals:
            engine.submit(self.request_of(life), accepted=True)

    # ---- after it ---------------------------------------------------------------------------------

    def go_on(self, start: int, horizon: int | None, between: Callable[[], None]) -> Iterator[Iteration]:
        """Run until every request has ended, or for `horizon` iterations. `between` is called after each.

        start: record number from which on the journal's commands are still to be obeyed.
        """
        engine, clock = self.engine, self.clock
        engine.paused, engine.pace = False, None
        due = self._due(start)
        left, fruitless = horizon, 0
        while left is None or left > 0:
            while due and due[0].time <= clock.now():
                heapq.heappop(due).ask()
            record = engine.step() or engine.step()  # see `repeat`
            if record is None and not self._skip_to_next(due):
                return
            if record is not None:
                yield record
            if record is not None and record.executed:
                fruitless = 0
                left = None if left is None else left - 1
                between()
                continue
            fruitless += 1
            if fruitless > STUCK:
                self.notes.append(f"{len(engine.scheduler.requests)} requests are stuck: {STUCK} tries ran nothing")
                return

    def _due(self, start: int) -> list[_Due]:
        """What the journal holds from record `start` on, by time; arrivals go to the engine at once, as planned ones.

        An id that is used again waits here for its time: two requests of one name cannot be planned together.
        """
        engine, order = self.engine, count()
        due: list[_Due] = []
        taken = set(engine.scheduler.requests)
        planned: list[Request] = []
        for seq, commands in self.journal.commands.items():
            if seq < start:
                continue
            time = self.journal.starts[seq]
            if commands.rebuilt is not None:
                self.notes.append(f"the recorded engine was built anew at {time:.1f} s; the one here stays as it is")
            for change in commands.knobs:
                if change.name not in self.skip_knobs:
                    due.append(_Due(time, next(order), _call(engine.try_knob, change.name, change.new)))
            for life in commands.arrived:
                if life.arrived.id in taken:
                    due.append(_Due(life.arrived.arrival, next(order), self._submit_later(life)))
                else:
                    taken.add(life.arrived.id)
                    planned.append(self.request_of(life))
            for id, detail in commands.aborted:
                due.append(_Due(time, next(order), _call(engine.abort, id, detail)))
        now = self.clock.now()
        for request in planned:
            # Whether it fits is asked when it arrives: the pool may be another one then.
            engine.submit(request, accepted=request.arrival is not None and request.arrival > now)
        heapq.heapify(due)
        return due

    def _submit_later(self, life: Life) -> Callable[[], None]:
        return lambda: self.engine.submit(self.request_of(life))

    def _skip_to_next(self, due: list[_Due]) -> bool:
        """Move the clock to when something can happen; False when nothing can."""
        engine, now = self.engine, self.clock.now()
        times = [time for time in (engine.next_event(), due[0].time if due else None) if time is not None]
        if not times:
            if engine.has_work():
                self.notes.append(f"{len(engine.scheduler.requests)} requests wait for what never comes")
            return False
        self.clock.jump(max(min(times), now + TICK))
        return True


def _call(ask: Callable[..., None], name: str, value: object) -> Callable[[], None]:
    return lambda: ask(name, value)
