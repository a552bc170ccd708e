"""`Conductor`: drives any engine by the commands of a journal, to the letter first and by the clock from then on.

Up to the fork every command comes before the very record that followed it, at that record's start time, and what the
scheduler decides must be what was decided then. After it requests arrive when they were planned to, aborts and knob
changes come at the time they came. Being paused, or held at a pace, is repeated before the fork and forgotten after it:
it says how a person watched, not what the engine was asked to do.
Omission: requests of a closed loop arrive when they did in the recording; a note says how many. What led to no command
that was obeyed (refused requests and knob values, notices) is not repeated, so records that told of nothing else have
no counterpart.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from itertools import count
from typing import Any, NamedTuple

from engine.engine import Engine
from engine.errors import ConfigError, DivergedError, ForkError
from engine.records import Iteration, KnobChange, Rebuilt
from engine.request import Request
from engine.whatif.clocks import MovedClock
from engine.whatif.journal import Aborted, Commands, Journal, Life, check_sum

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
        rebuild: Callable[[Rebuilt, bool], None] | None = None,
    ) -> None:
        """skip_knobs: recorded changes of these knobs are not made.

        rebuild: builds the engine anew as the recorded one was, told whether the model became another one; without it
        no rebuild can be repeated.
        """
        self.journal = journal
        self.engine = engine
        self.clock = clock
        self.request_of = request_of
        self.skip_knobs = frozenset(skip_knobs)
        self.rebuild = rebuild
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
                raise DivergedError(
                    f"iteration {engine.step_count} (record {seq}) cannot be repeated from the recording: the "
                    "scheduler decides otherwise now",
                    seq,
                    record,
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
        engine.paused, engine.pace = commands.paused, commands.pace
        if commands.rebuilt_again:
            raise ForkError(f"the engine was built anew more than once at record {seq}: forks reach only up to there")
        for command in commands.in_order():
            match command:
                case Life():
                    engine.submit(self.request_of(command), accepted=True)
                case Aborted(id, detail):
                    engine.abort(id, detail)
                case KnobChange():
                    if command.name not in self.skip_knobs:
                        engine.set_knob(command.name, command.new)
                case Rebuilt() if self.rebuild is not None:
                    self.rebuild(command, commands.model_changed)
                case Rebuilt():
                    raise ForkError(f"the engine was built anew at record {seq}: a rerun reaches only up to there")

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
        followers = 0
        for seq, commands in self.journal.commands.items():
            if seq < start:
                continue
            time = self.journal.starts[seq]
            for command in commands.in_order():
                match command:
                    case Life():
                        followers += command.arrived.after in taken
                        if command.arrived.id in taken:
                            due.append(_Due(command.arrived.arrival, next(order), self._submit_later(command)))
                        else:
                            taken.add(command.arrived.id)
                            planned.append(self.request_of(command))
                    case Aborted(id, detail):
                        due.append(_Due(time, next(order), _call(engine.abort, id, detail)))
                    case KnobChange():
                        if command.name not in self.skip_knobs:
                            due.append(_Due(time, next(order), _call(self._change, command.name, command.new)))
                    case Rebuilt():
                        self.notes.append(
                            f"the recorded engine was built anew at {time:.1f} s; the one here stays as it is"
                        )
        if followers:
            self.notes.append(
                f"closed loop: {followers} requests that waited for others arrive as recorded, however those do here"
            )
        now = self.clock.now()
        for request in planned:
            # Whether it fits is asked when it arrives: the pool may be another one then.
            engine.submit(request, accepted=request.arrival is not None and request.arrival > now)
        heapq.heapify(due)
        return due

    def _change(self, name: str, value: object) -> None:
        """A change that was possible in the recording may not be here."""
        engine = self.engine
        try:
            engine.set_knob(name, value)
        except ConfigError as error:
            engine.notice(f"refused {error}")
            self.notes.append(f"{name}={value}, as recorded at {engine.clock.now():.1f} s, is refused here: {error}")

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


def _call(ask: Callable[[str, Any], None], name: str, value: object) -> Callable[[], None]:
    return lambda: ask(name, value)
