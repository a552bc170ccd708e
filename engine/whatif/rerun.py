"""`Rerun`: a fork for real. A freshly built engine computes everything again, prefix and future.

The factory gets the knobs to start with and the clock to measure by. Until the fork the commands come before the same
iterations as in the recording and the clock is set to the recorded start of each; from there on time is the engine's
own, except that waiting for the next arrival takes none.

Invariant: if the model repeats its tokens whatever else is in the batch (exact mode), a request has the same tokens in
every rerun. If it does not, the schedule may differ before the fork already; that ends the rerun with a ForkError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from engine.clock import Clock
from engine.engine import Engine
from engine.errors import ForkError
from engine.knobs import KnobValue
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
            for record in conductor.repeat(self.at_step):
                watch.see(record)
                yield record
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


def rerun(
    journal: Journal, factory: EngineFactory, at_step: int, changes: Mapping[str, Any], *, horizon: int | None = None
) -> Rerun:
    return Rerun(journal, factory, at_step, changes, horizon=horizon)


def request_of(life: Life) -> Request:
    """The request as it was submitted."""
    arrived = life.arrived
    return Request(
        arrived.id,
        list(arrived.prompt_ids),
        arrived.params,
        client=arrived.client,
        priority=arrived.priority,
        arrival=arrived.arrival,
        deadline=arrived.deadline,
        expected_output=arrived.expected_output,
        prompt_text=arrived.prompt_text,
    )
