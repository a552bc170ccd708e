"""`Journal`: what it takes to run a recording again, kept compactly while its records go by.

Every command with the record before which it was applied, every request with its tokens and its end, and for every
iteration its times, what it cost its time for, and a check sum of what was decided.

Invariant: everything comes from the records. Commands of one record keep its `order`; records without one are taken to
have a rebuild first, then knob changes, aborts and arrivals (but nobody is aborted before arriving). Where in the order
a rebuild belongs may not be told (by a b): it is put as early as the knob versions and the requests it touched allow.
Omission: no text, and no prompt of a refused request (records have none), so refused requests are in no future.
Check sums are for this process only: hashes of strings differ in the next.
"""

from __future__ import annotations

import copy
from array import array
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from engine.config import EngineConfig
from engine.errors import ForkError
from engine.knobs import KNOBS
from engine.records import Arrived, Cause, Iteration, KnobChange, Rebuilt
from engine.request import FinishReason

FEATURES = 5
"""Numbers of `Work`, which `Journal.work` holds one after another for each iteration."""
LEAST_VOCABULARY = 256
"""Every tokenizer knows single bytes."""
MODEL_CHANGED = "the model was changed"
"""Detail of a request that a rebuild with another model ended."""


class Work(NamedTuple):
    """What an iteration spends its time on."""

    seqs: int = 0
    tokens: int = 0
    context: int = 0
    """Tokens that decodes look back on, summed."""
    attention: float = 0.0
    """Pairs of tokens that prompt chunks compare: n c + n (n + 1) / 2 for n tokens after c."""
    swapped: float = 0
    """Blocks copied out and in, counted in blocks of the size at the start."""


def work_of(parts: Iterable[tuple[int, int]], swapped: float = 0) -> Work:
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

    def submitted(self) -> dict[str, Any]:
        """What makes a `Request` of it, as it was submitted.

        Without `after` and `delay`: when it arrived is known, and must not be waited for a second time.
        """
        arrived = self.arrived
        return {
            "id": arrived.id,
            "prompt_ids": list(arrived.prompt_ids),
            "params": arrived.params,
            "client": arrived.client,
            "priority": arrived.priority,
            "arrival": arrived.arrival,
            "deadline": arrived.deadline,
            "expected_output": arrived.expected_output,
            "prompt_text": arrived.prompt_text,
            "session": arrived.session,
        }


class Aborted(NamedTuple):
    id: str
    detail: str


Command = KnobChange | Life | Aborted | Rebuilt


class Commands(NamedTuple):
    """What was asked before one record, and how the engine was held."""

    paused: bool
    pace: float | None
    knobs: tuple[KnobChange, ...] = ()
    """Those that a rebuild brought are in `rebuilt` alone."""
    arrived: tuple[Life, ...] = ()
    aborted: tuple[Aborted, ...] = ()
    rebuilt: Rebuilt | None = None
    order: str = ""
    """As `Iteration.order`, without refusals and with b for the rebuild; "" where there is nothing to tell."""
    model_changed: bool = False
    """By the rebuild: answers ended, prompts were encoded anew."""
    rebuilt_again: bool = False
    """There was more than one rebuild, and only the last one is known."""

    def in_order(self) -> Iterator[Command]:
        if self.order:
            lists: dict[str, Iterator[Command]] = {
                "k": iter(self.knobs),
                "a": iter(self.arrived),
                "x": iter(self.aborted),
                "b": iter(() if self.rebuilt is None else (self.rebuilt,)),
            }
            for letter in self.order:
                yield next(lists[letter])
            return
        if self.rebuilt is not None:
            yield self.rebuilt
        yield from self.knobs
        arrivals = deque(self.arrived)
        for gone in self.aborted:
            if any(life.arrived.id == gone.id for life in arrivals):
                while arrivals[0].arrived.id != gone.id:
                    yield arrivals.popleft()
                yield arrivals.popleft()
            yield gone
        yield from arrivals


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
        self.vocabulary = LEAST_VOCABULARY
        """Above every token id that was seen."""
        self._alive: dict[str, Life] = {}
        self._block_size = config.block_size
        self._knob_version = 0
        self._held: tuple[str, ...] = ()
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

    def stretch(self, at_step: int) -> range:
        """Records between the rebuilds before and after the point from where iteration `at_step` + 1 begins."""
        at = self.prefix(at_step)
        rebuilds = [seq for seq, commands in self.commands.items() if commands.rebuilt is not None]
        first = max((seq for seq in rebuilds if seq < at), default=0)
        return range(first, min((seq for seq in rebuilds if seq >= at), default=self.num_records))

    def times(self, seq: int) -> tuple[float, float]:
        """When a record ended, and the seconds of its forward pass."""
        return self.ends[seq], self.forwards[seq]

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
            self.vocabulary = max(self.vocabulary, max(life.arrived.prompt_ids, default=0) + 1)
        aborted = () if it.fault else self._end(it)
        control = (it.paused, it.pace)
        if arrived or aborted or it.knobs or it.rebuilt or control != self._control:
            self.commands[it.seq] = self._commands(it, arrived, aborted)
        self._control, self._knob_version, self._held = control, it.knob_version, (*it.running, *it.swapped)
        if it.rebuilt is not None:
            self._block_size = it.rebuilt.block_size
            most = max((max(ids, default=0) for _, ids in it.rebuilt.prompts), default=0)
            self.vocabulary = max(self.vocabulary, most + 1)
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
                    (copied.out_blocks + copied.in_blocks) * self._block_size / self.config.block_size,
                )
            )

    def _commands(self, it: Iteration, arrived: tuple[Life, ...], aborted: tuple[Aborted, ...]) -> Commands:
        order, knobs, changed, again = it.order.replace("r", ""), it.knobs, False, False
        counts = {"a": len(arrived), "x": len(aborted), "k": len(knobs)}
        if it.rebuilt is not None:
            changed = bool(it.rebuilt.prompts) or any(done.detail == MODEL_CHANGED for done in it.finished)
            own = it.knob_version - self._knob_version - 1  # every other version is a knob that was set
            version = _rebuild_version(it, self._knob_version)
            knobs = tuple([change for change in knobs if change.version != version])
            again = len(knobs) != own or not all(KNOBS[change.name].live for change in knobs)
            again |= bool(order) and (order.count("k") != own or order.count("b") > 1)
            counts["k"] = own
            if any(order.count(letter) != count for letter, count in counts.items()):
                order = ""
            elif "b" not in order:
                at = _rebuild_at(it, order, sum(change.version < version for change in knobs), self._held)
                order = f"{order[:at]}b{order[at:]}"
        elif len(set(order)) < 2 or any(order.count(letter) != count for letter, count in counts.items()):
            order = ""
        return Commands(it.paused, it.pace, knobs, arrived, aborted, it.rebuilt, order, changed, again)

    def _end(self, it: Iteration) -> tuple[Aborted, ...]:
        for token in it.tokens:
            self._alive[token.id].tokens.append(token.token_id)
            if token.token_id >= self.vocabulary:
                self.vocabulary = token.token_id + 1
        aborted = []
        for done in it.finished:
            life = self._alive.pop(done.id)
            life.reason, life.detail = done.reason, done.detail
            if done.reason is FinishReason.ABORT and not (it.rebuilt is not None and done.detail == MODEL_CHANGED):
                aborted.append(Aborted(done.id, done.detail))
        return tuple(aborted)


def _rebuild_version(it: Iteration, before: int) -> int:
    """The knob version that a rebuild made; its record has a change for each knob it changed, or none at all."""
    if "b" in it.order:
        return before + 1 + it.order[: it.order.index("b")].count("k")
    versions = [change.version for change in it.knobs]
    for version in range(before + 1, it.knob_version + 1):
        if versions.count(version) != 1:
            return version
    # One change for each version: a knob that is not live can only have come with the rebuild.
    fixed = [change.version for change in it.knobs if not KNOBS[change.name].live]
    return fixed[0] if fixed else min(versions, default=0)


def _rebuild_at(it: Iteration, order: str, knobs: int, held: Collection[str]) -> int:
    """Where in `order` a rebuild belongs: after `knobs` knob changes, and after those it changed, ended or missed.

    The earliest such place, because commands pile up behind a rebuild: it takes long.
    held: who had blocks before this record.
    """
    assert it.rebuilt is not None
    found = {victim.id for victim in it.preempted if victim.cause is Cause.REBUILD}
    touched = {id for id, _ in it.rebuilt.prompts}
    went_on = {token.id for token in it.tokens}
    aborts = aborts_before = 0
    for done in it.finished:
        if done.reason is FinishReason.ABORT and done.detail != MODEL_CHANGED:
            aborts += 1
            if done.id in held and done.id not in found:
                aborts_before = aborts
        elif done.id not in went_on:
            touched.add(done.id)
    arrivals_before = max((index for index, new in enumerate(it.arrived, 1) if new.id in touched), default=0)
    left = {"k": knobs, "a": arrivals_before, "x": aborts_before}
    place = 0
    while any(count > 0 for count in left.values()):
        left[order[place]] -= 1
        place += 1
    return place


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
