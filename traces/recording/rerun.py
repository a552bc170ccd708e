"""Running a recording again, for real: a freshly built engine is asked for the same, before the same iterations.

What the recording tells of the clock is repeated too, because policies look at it. So the schedule must come out the
same, iteration by iteration, and with a model that repeats its tokens (float32 on CPU) the tokens as well.
Omission: what was refused is not asked for again; beyond a rebuild of the engine there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from engine.errors import DivergedError, ForkError
from engine.records import Iteration
from engine.whatif.journal import Journal
from engine.whatif.rerun import EngineFactory, Rerun
from traces.errors import RecordingError
from traces.recording.reader import Recording

Progress = Callable[[str, int, int], None]
FIELDS = (
    "step", "arrived", "scheduled", "preempted", "tokens", "finished", "running", "waiting", "num_waiting", "swapped",
    "batch", "free_blocks_mid", "free_blocks", "off_blocks", "blocks", "prefix", "limit",
)  # fmt: skip
"""In this order they are compared; all else is times, or told to people."""


class Difference(NamedTuple):
    seq: int
    step: int
    field: str
    """The first field of the record that is not the same; "" when there is no such record now."""
    recorded: Any
    now: Any
    """The first item that differs, where the field is a list of them."""

    def __str__(self) -> str:
        where = f"iteration {self.step} (record {self.seq})"
        if not self.field:
            return f"{where}: the engine did nothing where the recording has a record"
        return f"{where}, {self.field}: recorded {_short(self.recorded)}, now {_short(self.now)}"


class RerunResult(NamedTuple):
    difference: Difference | None
    steps: int
    """Iterations that were the same."""
    total: int
    """Iterations of the recording."""
    notes: tuple[str, ...]
    """How far it went, and what may differ for a good reason."""


def rerun_recording(recording: Recording, factory: EngineFactory, *, progress: Progress | None = None) -> RerunResult:
    """Run all of it again. factory(knobs, clock) builds the recorded engine: same model, dtype, seed.

    RecordingError when the recording does not hold what that takes.
    """
    tell = progress or (lambda stage, done, total: None)
    header = recording.header
    if header.first_seq:
        raise RecordingError(
            f"{recording.name} begins with record {header.first_seq}, in the middle of a run: it can be played, and "
            "not run again"
        )
    if not header.tokens:
        raise RecordingError(f"{recording.name} holds no prompts: it can be played, and not run again")
    notes: list[str] = []
    if not header.exact:
        notes.append(
            f"{header.info.dtype} on {header.info.device}: tokens may differ with other batches or another machine, "
            "and what follows from them"
        )
    journal = Journal(header.info.config)
    rebuilt: int | None = None
    for it in recording.iterations():
        if it.rebuilt is not None or it.fault is not None:
            rebuilt = it.seq
            what = "was built anew" if it.rebuilt is not None else "failed"
            notes.append(f"the recorded engine {what} at record {it.seq}: run again up to there")
            break
        journal.add(it)
    if journal.broken is not None:
        raise RecordingError(f"{recording.name}: {journal.broken}")
    total = journal.steps
    done = 0

    def result(difference: Difference | None) -> RerunResult:
        return RerunResult(difference, done, total, tuple(notes))

    again = iter(Rerun(journal, factory, total, {}, horizon=0))
    recorded = recording.iterations(0, rebuilt)
    try:
        for now in again:
            old = _counterpart(recorded, now.seq)
            difference = compare(old, now)
            if difference is not None:
                return result(difference)
            done += now.executed
            if now.executed:
                tell("running again", done, total)
    except DivergedError as diverged:
        old = _counterpart(recorded, diverged.seq)
        if diverged.record is None:
            return result(Difference(old.seq, old.step, "", None, None))
        found = compare(old, diverged.record) or Difference(old.seq, old.step, "schedule", None, None)
        return result(found)
    except ForkError as problem:
        raise RecordingError(f"{recording.name}: {problem}") from None
    return result(None)


def _counterpart(recorded: Iterator[Iteration], seq: int) -> Iteration:
    """Records that told of nothing but refusals and notices have none, and are passed over."""
    return next(it for it in recorded if it.seq == seq)


def compare(recorded: Iteration, now: Iteration) -> Difference | None:
    """The first field that differs."""
    for name in FIELDS:
        old, new = getattr(recorded, name), getattr(now, name)
        if name == "arrived":  # of a closed loop only the arrival itself is repeated
            old = tuple([one._replace(after=None, delay=0.0) for one in old])
            new = tuple([one._replace(after=None, delay=0.0) for one in new])
        if old == new:
            continue
        if isinstance(old, tuple) and isinstance(new, tuple) and name != "prefix":
            at = next((at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), None)
            if at is None:
                at = min(len(old), len(new))
            return Difference(
                recorded.seq,
                recorded.step,
                name,
                old[at] if at < len(old) else None,
                new[at] if at < len(new) else None,
            )
        return Difference(recorded.seq, recorded.step, name, old, new)
    return None


def _short(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."
