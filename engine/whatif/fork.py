"""Forks of a recording that run no model: `fork`, `ForkPoint` for several from the same iteration, and `replay`.

A fork repeats the recording exactly up to its iteration and then goes on with other knobs, recorded tokens and
modelled times. The one without changes is the baseline: it is modelled too, so that two futures are compared like with
like. After a rebuild in the recording a fork goes on with the engine that was built then, and times are fitted to
that one alone where it ran long enough.

Invariant: a fork never changes the journal, and the same journal, iteration and changes give the same records.
"""

from __future__ import annotations

import copy
import copyreg
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

from sortedcontainers import SortedKeyList, SortedList

from engine.config import EngineConfig
from engine.records import Iteration, Rebuilt
from engine.whatif.changes import apply, check, plan_anew
from engine.whatif.clocks import VirtualClock
from engine.whatif.conductor import Conductor
from engine.whatif.costs import FittedCosts
from engine.whatif.forced import ForcedEngine, ForcedExecutor, ForcedRequest
from engine.whatif.future import Future
from engine.whatif.journal import Journal
from engine.whatif.watch import Watch


def _plain_parts(queue: SortedList) -> tuple[Any, ...]:
    """As any other object. By itself a sorted list is copied by sorting, with a key that may not be complete yet."""
    return copyreg.__newobj__, (type(queue),), vars(queue)  # type: ignore[attr-defined]


copyreg.pickle(SortedList, _plain_parts)
copyreg.pickle(SortedKeyList, _plain_parts)


def fork(journal: Journal, at_step: int, changes: Mapping[str, Any], *, horizon: int | None = None) -> Future:
    """The future from iteration `at_step` + 1 on, with other knobs. ConfigError or ForkError when there is none.

    horizon: most iterations; None runs until every request has ended.
    """
    return ForkPoint(journal, at_step).future(changes, horizon=horizon)


def replay(journal: Journal) -> Iterator[Iteration]:
    """The whole recording once more without a model, decisions and times exactly as they were."""
    journal.check(journal.steps)
    yield from _Branch(journal, journal.config, FittedCosts()).repeat(journal.steps)


class ForkPoint:
    """A recording run up to one iteration, from where futures cost no more than themselves.

    The journal must not grow meanwhile; give it a `copy()` of one that does.
    """

    def __init__(self, journal: Journal, at_step: int, costs: FittedCosts | None = None) -> None:
        """costs: fitted to the journal if not given."""
        journal.check(at_step)
        self.journal = journal
        self.at_step = at_step
        self.costs = FittedCosts.fit(journal, at_step) if costs is None else costs
        self._trunk = _Branch(journal, journal.config, self.costs)
        for _ in self._trunk.repeat(at_step):
            pass

    @property
    def config(self) -> EngineConfig:
        """The knobs at this point."""
        return self._trunk.engine.config

    @cached_property
    def baseline(self) -> Future:
        """The future without changes."""
        return self.future({})

    def future(self, changes: Mapping[str, Any], *, horizon: int | None = None) -> Future:
        notes: list[str] = []
        wanted, anew = check(changes, self.config, self.at_step)
        if anew:
            branch = _Branch(self.journal, plan_anew(self.journal.config, wanted, notes), self.costs, wanted)
            branch.conductor.wait_for(0)
        else:
            branch = self._branch(wanted)
            apply(branch.engine, wanted)
        start = branch.clock.now()
        before = branch.watch.before(branch.engine)
        at_fork = branch.engine.config
        records = tuple(branch.go_on(0 if anew else self.journal.prefix(self.at_step), horizon))
        notes += [*self.costs.notes, *branch.notes()]
        complete = not branch.engine.has_work()
        return Future(
            self.at_step, wanted, at_fork, start, before, records, complete, branch.assumed, self.costs, tuple(notes)
        )

    def _branch(self, skip_knobs: Collection[str]) -> _Branch:
        """One that stands at this point. Nobody knows how to copy an outside policy: with one all is repeated."""
        if type(self._trunk.engine.scheduler.policy).__module__.startswith("engine."):
            return self._trunk.split(skip_knobs)
        branch = _Branch(self.journal, self.journal.config, self.costs)
        for _ in branch.repeat(self.at_step):
            pass
        branch.conductor.skip_knobs = frozenset(skip_knobs)
        return branch


class _Branch:
    """A forced engine with all that belongs to it."""

    def __init__(
        self, journal: Journal, config: EngineConfig, costs: FittedCosts, skip_knobs: Collection[str] = ()
    ) -> None:
        self.journal = journal
        self.costs = costs
        self.clock = VirtualClock()
        self.executor = ForcedExecutor(self.clock, costs, config.block_size, journal.vocabulary)
        self.engine = ForcedEngine(config, self.executor, self.clock)
        self.watch = Watch()
        self.conductor = Conductor(journal, self.engine, self.clock, ForcedRequest, skip_knobs, self._rebuild)

    @property
    def assumed(self) -> frozenset[str]:
        return frozenset(self.executor.assumed)

    def split(self, skip_knobs: Collection[str]) -> _Branch:
        """An independent branch that stands where this one does."""
        new = copy.copy(self)
        shared = (self.journal, self.costs, self.engine.tokenizer)
        memo: dict[int, Any] = {id(thing): thing for thing in shared}
        new.clock = copy.deepcopy(self.clock, memo)
        new.executor = copy.deepcopy(self.executor, memo)
        new.engine = copy.deepcopy(self.engine, memo)
        new.watch = copy.deepcopy(self.watch)
        new.conductor = Conductor(self.journal, new.engine, new.clock, ForcedRequest, skip_knobs)
        return new

    def repeat(self, at_step: int) -> Iterator[Iteration]:
        journal, executor = self.journal, self.executor

        def before(seq: int) -> None:
            executor.recorded = journal.times(seq)

        for record in self.conductor.repeat(at_step, before):
            self.watch.see(record)
            yield record
        executor.recorded = None

    def go_on(self, start: int, horizon: int | None) -> Iterator[Iteration]:
        pause = self.costs.between
        return self.conductor.go_on(start, horizon, lambda: self.clock.advance(pause))

    def _rebuild(self, rebuilt: Rebuilt, model_changed: bool) -> None:
        self.executor.block_size = rebuilt.block_size
        new = ForcedEngine(EngineConfig.resolve(dict(rebuilt.knobs)), self.executor, self.clock)
        prompts = {id: list(ids) for id, ids in rebuilt.prompts}
        reencode = (lambda request: prompts.get(request.id)) if model_changed else None
        self.engine.rebuild(new, rebuilt.model, rebuilt.dtype, reencode)

    def notes(self) -> list[str]:
        notes = []
        if self.assumed:
            notes.append(
                f"{len(self.assumed)} requests go on further than they were recorded: those tokens are placeholders"
            )
        if self.executor.far:
            notes.append(
                f"{self.executor.far} iterations are more than twice as large as any that was measured: their times "
                "are extrapolated"
            )
        if self.executor.copied and self.costs.swap_assumed:
            seconds = self.costs.swap_seconds(1, self.executor.block_size)
            notes.append(
                f"never measured: swap assumed at {seconds * 1e6:.3g} µs a block, a fifth of computing its tokens"
            )
        return [*notes, *self.conductor.notes]
