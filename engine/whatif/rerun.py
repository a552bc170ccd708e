"""`Rerun`: a fork for real. A freshly built engine computes everything again, prefix and future.

The factory gets the knobs to start with and the clock to measure by. Until the fork the commands come before the same
iterations as in the recording, and all times are the recorded ones: policies look at them. From there on time is the
engine's own, except that waiting for the next arrival takes none.

Invariant: if the model repeats its tokens whatever else is in the batch (exact mode), a request has the same tokens in
every rerun. If it does not, the schedule may differ before the fork already; that ends the rerun with a ForkError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from engine.clock import Clock
from engine.engine import Engine
from engine.errors import ForkError
from engine.executors.base import Executor, Sampled
from engine.knobs import KnobValue
from engine.plan import Plan
from engine.records import Iteration
from engine.request import Request
from engine.whatif.changes import apply, check, plan_anew
from engine.whatif.clocks import ShiftedClock
from engine.whatif.conductor import Conductor
from engine.whatif.future import Future
from engine.whatif.journal import Journal, Life
from engine.whatif.watch import Watch

EngineFactory = Callable[[dict[str, KnobValue], Clock], Engine]


class Rerun:
    """Iterate over it once for all its records, the repeated ones included; `future` is there afterwards."""

    def __init__(
        self,
        journal: Journal,
        factory: EngineFactory,
        at_step: int,
        changes: Mapping[str, Any],
        *,
        horizon: int | None = None,
    ) -> None:
        journal.check(at_step)
        self.journal = journal
        self.at_step = at_step
        self.horizon = horizon
        self._notes: list[str] = []
        self.changes, anew = check(changes, journal.config, at_step)
        config = plan_anew(journal.config, self.changes, self._notes) if anew else journal.config
        self._anew = anew
        self._clock = ShiftedClock()
        self._engine = factory(config.values(), self._clock)
        self._future: Future | None = None

    @property
    def future(self) -> Future:
        if self._future is None:
            raise ForkError("the rerun has not been run to its end yet")
        return self._future

    def __iter__(self) -> Iterator[Iteration]:
        engine = self._engine
        conductor = Conductor(self.journal, engine, self._clock, request_of, self.changes if self._anew else ())
        watch = Watch()
        if self._anew:
            conductor.wait_for(0)
        else:
            own = engine.executor
            timed = engine.executor = _RecordedTimes(own, self._clock)
            self._clock.stop()
            for record in conductor.repeat(self.at_step, lambda seq: timed.expect(*self.journal.times(seq))):
                watch.see(record)
                yield record
            engine.executor = own
            self._clock.go_on()
            conductor.skip_knobs = frozenset(self.changes)
            apply(engine, self.changes)
        start, before, config = self._clock.now(), watch.before(engine), engine.config
        records = []
        for record in conductor.go_on(
            0 if self._anew else self.journal.prefix(self.at_step), self.horizon, lambda: None
        ):
            records.append(record)
            yield record
        self._notes += conductor.notes
        self._future = Future(
            self.at_step,
            self.changes,
            config,
            start,
            before,
            tuple(records),
            not engine.has_work(),
            notes=tuple(self._notes),
        )


class _RecordedTimes:
    """An executor that takes as long as it did in the recording, by a clock that was stopped."""

    def __init__(self, executor: Executor, clock: ShiftedClock) -> None:
        self._executor = executor
        self._clock = clock
        self._end = self._forward = 0.0

    def expect(self, end: float, forward: float) -> None:
        self._end, self._forward = end, forward

    def execute(self, plan: Plan) -> Sampled:
        sampled = self._executor.execute(plan)
        self._clock.jump(self._end)
        return sampled._replace(build=0.0, forward=self._forward, sample=0.0)

    def copy_blocks(self, out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        return self._executor.copy_blocks(out, back)

    def release(self, id: str) -> None:
        self._executor.release(id)


def rerun(
    journal: Journal, factory: EngineFactory, at_step: int, changes: Mapping[str, Any], *, horizon: int | None = None
) -> Rerun:
    return Rerun(journal, factory, at_step, changes, horizon=horizon)


def request_of(life: Life) -> Request:
    """The request as it was submitted."""
    return Request(**life.submitted())
