"""`Journal`: what it takes to run a recording again, kept compactly while its records go by.

Every command with the record before which it was applied, every request with its tokens and its end, and for every
iteration its times, what it cost its time for, and a check sum of what was decided.

Invariant: everything comes from the records. Within one record knob changes are taken to come first, then aborts, then
arrivals (but nobody is aborted before arriving); records do not tell more.
Omission: no text, and no prompt of a refused request (records have none), so refused requests are in no future.
Check sums are for this process only: hashes of strings differ in the next.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Iterable
from typing import NamedTuple

from engine.config import EngineConfig
from engine.errors import ForkError
from engine.records import Arrived, Iteration, KnobChange, Rebuilt
from engine.request import FinishReason

FEATURES = 5
"""Numbers of `Work`, which `Journal.work` holds one after another for each iteration."""


class Work(NamedTuple):
    """What an iteration spends its time on."""

    seqs: int = 0
    tokens: int = 0
    context: int = 0
    """Tokens that decodes look back on, summed."""
    attention: float = 0.0
    """Pairs of tokens that prompt chunks compare: n c + n (n + 1) / 2 for n tokens after c."""
    swapped: int = 0
    """Blocks copied out and in."""


def work_of(parts: Iterable[tuple[int, int]], swapped: int = 0) -> Work:
    """Of (tokens, computed before) of everything scheduled."""
    seqs = tokens = context = 0
    attention = 0.0
    for count, start in parts:
        seqs += 1
        tokens += count
        if count == 1:
            context += start + 1
        else:
            attention += count * start + count * (count + 1) / 2
    return Work(seqs, tokens, context, attention, swapped)


class Life:
    """One request, from its arrival on, as the recording tells it."""

    __slots__ = ("arrived", "detail", "reason", "tokens")

    def __init__(self, arrived: Arrived) -> None:
        self.arrived = arrived
        self.tokens = array("i")
        self.reason: FinishReason | None = None
        """None: it had not ended when the recording did."""
        self.detail = ""


class Commands(NamedTuple):
    """What was asked before one record, and how the engine was held."""

    paused: bool
    pace: float | None
    knobs: tuple[KnobChange, ...] = ()
    arrived: tuple[Life, ...] = ()
    aborted: tuple[tuple[str, str], ...] = ()
    """(id, detail)."""
    rebuilt: Rebuilt | None = None


class Journal:
    """Feed it every record of a run, from the first on."""

    def __init__(self, config: EngineConfig) -> None:
        """config: the engine's at its start."""
        self.config = config
        self.broken: str | None = None
        """Why this is no complete recording; no record after that is looked at."""
        self.lives: list[Life] = []
        """In order of arrival."""
        self.commands: dict[int, Commands] = {}
        """By record number, where there are any."""
        self.starts = array("d")
        """By record number, like the next five."""
        self.ends = array("d")
        self.forwards = array("d")
        """Seconds of the forward pass: a policy may have looked at them."""
        self.asked = array("b")
        """0: the scheduler was not asked; 1: it had no answer; 2: somebody ran, or was preempted."""
        self.flows = array("b")
        """1: nothing but the engine's own speed decided when the next record began."""
        self.sums = array("q")
        """What was decided, as a check sum; 0 where nothing was."""
        self.step_seqs = array("q")
        """Record number by executed iteration, the first at index 0."""
        self.work = array("d")
        """`Work` of every executed iteration, FEATURES numbers each."""
        self._alive: dict[str, Life] = {}
        self._control: tuple[bool, float | None] = (False, None)

    # ---- reading ----------------------------------------------------------------------------------

    @property
    def num_records(self) -> int:
        return len(self.starts)

    @property
    def steps(self) -> int:
        """Executed iterations."""
        return len(self.step_seqs)

    @property
    def truncated(self) -> bool:
        return self.broken is not None

    def check(self, at_step: int) -> None:
        """ForkError when there is no complete recording up to that step."""
        if self.broken is not None:
            raise ForkError(self.broken)
        if not 0 <= at_step <= self.steps:
            raise ForkError(f"there is no iteration {at_step} to fork at: the recording has 0 to {self.steps}")

    def prefix(self, at_step: int) -> int:
        """How many records come before iteration `at_step` + 1, those that only carry commands included."""
        return self.step_seqs[at_step] if at_step < self.steps else self.num_records

    def copy(self) -> Journal:
        """As it is now, for another thread to work on. Take it in the thread that adds the records."""
        new = copy.copy(self)
        lives = {id(life): copy.copy(life) for life in self.lives}
        for life in lives.values():
            life.tokens = life.tokens[:]
        new.lives = list(lives.values())
        new.commands = {
            seq: commands._replace(arrived=tuple([lives[id(life)] for life in commands.arrived]))
            for seq, commands in self.commands.items()
        }
        new._alive = {name: lives[id(life)] for name, life in self._alive.items()}
        for name in ("starts", "ends", "forwards", "asked", "flows", "sums", "step_seqs", "work"):
            setattr(new, name, getattr(self, name)[:])
        return new

    # ---- writing ----------------------------------------------------------------------------------

    def add(self, it: Iteration) -> None:
        """Take in the next record."""
        if self.broken is not None:
            return
        if it.seq != self.num_records:
            self.broken = (
                f"the recording begins with record {it.seq}, not with 0: what came before is needed to run it again"
                if not self.num_records
                else f"record {self.num_records} is missing in the recording: what comes after cannot be run again"
            )
            return
        arrived = tuple([Life(request) for request in it.arrived])
        for life in arrived:
            self.lives.append(life)
            self._alive[life.arrived.id] = life
        aborted = () if it.fault else self._end(it)
        control = (it.paused, it.pace)
        if arrived or aborted or it.knobs or it.rebuilt or control != self._control:
            self.commands[it.seq] = Commands(*control, it.knobs, arrived, aborted, it.rebuilt)
        self._control = control
        asked = 0 if not it.budget else 2 if it.scheduled or it.preempted else 1
        self.starts.append(it.t_start)
        self.ends.append(it.t_end)
        self.forwards.append(it.timings.forward)
        self.asked.append(asked)
        self.flows.append(it.executed and bool(it.running) and not it.paused and it.pace is None)
        self.sums.append(check_sum(it) if asked else 0)
        if it.executed:
            self.step_seqs.append(it.seq)
            copied = it.copied
            self.work.extend(
                work_of(
                    [(item.num_tokens, item.computed_before) for item in it.scheduled],
                    copied.out_blocks + copied.in_blocks,
                )
            )

    def _end(self, it: Iteration) -> tuple[tuple[str, str], ...]:
        for token in it.tokens:
            self._alive[token.id].tokens.append(token.token_id)
        aborted = []
        for done in it.finished:
            life = self._alive.pop(done.id)
            life.reason, life.detail = done.reason, done.detail
            if done.reason is FinishReason.ABORT:
                aborted.append((done.id, done.detail))
        return tuple(aborted)


def check_sum(it: Iteration) -> int:
    """Of all that the scheduler decides: who runs with how much in which blocks, who lost, who waits, what is free."""
    return hash(
        (
            tuple([(item.id, item.num_tokens, item.computed_before, item.new_blocks) for item in it.scheduled]),
            tuple([(victim.id, victim.lost_tokens) for victim in it.preempted]),
            it.running,
            it.waiting,
            it.num_waiting,
            it.swapped,
            it.free_blocks_mid,
            it.free_blocks,
            len(it.finished),
        )
    )
