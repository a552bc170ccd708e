"""The lines of the events panel, one for each thing worth telling in a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from engine.records import Cause, Iteration, Kind, Preempted
from engine.request import FinishReason
from workbench.model.cells import Cell
from workbench.text import clean, seconds

STORM = "preemption storm"
"""How the engine's notice about one begins."""
MOST_PER_RECORD = 40
"""Lines of one kind from one record; the rest are counted."""


class EventKind(StrEnum):
    ARRIVED = "arrived"
    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    RESUMED = "resumed"
    SWAPPED_OUT = "swapped-out"
    SWAPPED_IN = "swapped-in"
    COPIED = "copied"
    BATCH = "batch"
    STORM = "storm"
    FINISHED = "finished"
    KNOB = "knob"
    NOTICE = "notice"
    REJECTED = "rejected"
    FAULT = "fault"


MARKS: dict[EventKind, tuple[str, Cell | None]] = {
    EventKind.ARRIVED: (">", None),
    EventKind.ADMITTED: ("+", None),
    EventKind.PREEMPTED: ("×", Cell.PREEMPTED),
    EventKind.RESUMED: ("▚", Cell.RECOMPUTE),
    EventKind.SWAPPED_OUT: ("▽", Cell.SWAP_OUT),
    EventKind.SWAPPED_IN: ("△", Cell.SWAP_IN),
    EventKind.COPIED: ("=", None),
    EventKind.BATCH: ("#", None),
    EventKind.STORM: ("%", None),
    EventKind.FINISHED: ("◆", Cell.FINISHED),
    EventKind.KNOB: ("!", None),
    EventKind.NOTICE: ("?", None),
    EventKind.REJECTED: ("◇", Cell.ABORTED),
    EventKind.FAULT: ("!", None),
}
_PREEMPTIONS = frozenset(
    {
        EventKind.PREEMPTED, EventKind.RESUMED, EventKind.SWAPPED_OUT, EventKind.SWAPPED_IN, EventKind.COPIED,
        EventKind.STORM,
    }
)  # fmt: skip
FILTERS: tuple[tuple[str, frozenset[EventKind]], ...] = (
    ("all", frozenset(EventKind)),
    ("preemptions", _PREEMPTIONS),
    ("ends", frozenset({EventKind.FINISHED, EventKind.REJECTED})),
    ("arrivals", frozenset({EventKind.ARRIVED, EventKind.ADMITTED, EventKind.REJECTED, EventKind.BATCH})),
    ("knobs", frozenset({EventKind.KNOB, EventKind.NOTICE, EventKind.FAULT})),
)


class Event(NamedTuple):
    step: int
    kind: EventKind
    id: str | None
    text: str
    """After the letter; clean."""
    aborted: bool = False


def events_of(
    it: Iteration, letter: Callable[[str], str], batch: tuple[str, ...] = (), storm: str = ""
) -> Iterator[Event]:
    """The events of a record, in the order in which they happened. `batch` and `storm` are those before it."""
    if it.rebuilt is not None:
        new = it.rebuilt
        text = f"engine built anew: {clean(new.model)} {new.dtype}, {new.num_blocks - 1} blocks of {new.block_size}"
        yield Event(it.step, EventKind.KNOB, None, text)
    for change in it.knobs:
        text = f"{change.name} {show(change.old)}→{show(change.new)}  v{change.version}"
        yield Event(it.step, EventKind.KNOB, None, text)
    for notice in it.notices:
        told = notice.startswith(STORM)
        yield Event(it.step, EventKind.STORM if told else EventKind.NOTICE, None, clean(notice))
    for n, arrived in enumerate(it.arrived):
        if n == MOST_PER_RECORD:
            yield Event(it.step, EventKind.ARRIVED, None, f"and {len(it.arrived) - n} more arrived")
            break
        text = f"arrived    {len(arrived.prompt_ids)} tok, max {arrived.max_tokens}  {clean(arrived.client)}"
        yield Event(it.step, EventKind.ARRIVED, arrived.id, text)
    for n, rejected in enumerate(it.rejected):
        if n == MOST_PER_RECORD:
            yield Event(it.step, EventKind.REJECTED, None, f"and {len(it.rejected) - n} more rejected")
            break
        yield Event(it.step, EventKind.REJECTED, None, f"rejected {clean(rejected.id)}: {clean(rejected.reason)}")
    for victim in it.preempted:
        kind = EventKind.SWAPPED_OUT if victim.swapped_blocks else EventKind.PREEMPTED
        word = "swap out " if victim.swapped_blocks else "preempted"
        yield Event(it.step, kind, victim.id, f"{word}  {cause_text(victim, letter)}, {loss_text(victim)}")
    fresh = set(it.batch) - set(batch)
    if fresh:
        padding = f", {it.slots.padding} padding tokens" if it.slots.padding else ""
        yield Event(it.step, EventKind.BATCH, None, f"batch of {len(it.batch)} formed{padding}")
    for item in it.scheduled:
        if item.kind is Kind.RUNNING:
            continue
        hit = f", {item.computed_before} cached" if item.computed_before else ""
        if item.kind is Kind.SWAPPED_IN:
            yield Event(it.step, EventKind.SWAPPED_IN, item.id, f"swap in    {len(item.new_blocks)} blocks back")
        elif item.kind is Kind.NEW:
            yield Event(it.step, EventKind.ADMITTED, item.id, f"admitted   {item.phase} {item.num_tokens} tok{hit}")
        else:
            yield Event(it.step, EventKind.RESUMED, item.id, f"resumed    {item.phase} {item.num_tokens} tok{hit}")
    if it.copied.num_bytes:
        out, back, size = it.copied
        text = f"copied     {out} blocks out, {back} in: {bytes_text(size)} in {seconds(it.timings.swap)}"
        yield Event(it.step, EventKind.COPIED, None, text)
    if it.storm and not storm and not any(notice.startswith(STORM) for notice in it.notices):
        yield Event(it.step, EventKind.STORM, None, f"{STORM}: {clean(it.storm)}")
    elif storm and not it.storm:
        yield Event(it.step, EventKind.STORM, None, f"the {STORM} is over")
    for done in it.finished:
        aborted = done.reason in (FinishReason.ABORT, FinishReason.ERROR)
        word = "aborted" if done.reason is FinishReason.ABORT else "failed" if aborted else "finished"
        detail = f" {clean(done.detail)}" if done.detail else ""
        text = f"{word:<9}  {done.output_len} tok  e2e {seconds(it.t_end - done.arrival)}  {done.reason}{detail}"
        yield Event(it.step, EventKind.FINISHED, done.id, text, aborted)
    if it.fault is not None:
        last = it.fault.strip().splitlines()[-1] if it.fault.strip() else "unknown"
        yield Event(it.step, EventKind.FAULT, None, f"engine fault: {clean(last)}")


def cause_text(victim: Preempted, letter: Callable[[str], str]) -> str:
    """Why a request was preempted, in few words."""
    if victim.cause is Cause.REBUILD:
        return "the engine was built anew"
    if victim.cause is Cause.SHRINK:
        return f"pool shrunk: need {victim.need} free {victim.free}"
    by = "itself" if victim.by == victim.id else letter(victim.by)
    if victim.cause is Cause.DISPLACED:
        return f"displaced by {by}"
    return f"by {by}: need {victim.need} free {victim.free}"


def loss_text(victim: Preempted) -> str:
    if victim.swapped_blocks:
        return f"{victim.swapped_blocks} blocks kept"
    return f"{victim.lost_tokens} tok dropped"


def bytes_text(size: float) -> str:
    for unit in ("B", "kB", "MB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"


def show(value: object) -> str:
    """A knob's value as a person writes it."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        return f"{value:g}"
    text = clean(str(value))
    return text if text.strip(" ,") else "-"  # a list of nothing is empty too
