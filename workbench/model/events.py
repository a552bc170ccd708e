"""The lines of the events panel, one for each thing worth telling in a record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from engine.records import Iteration, Kind
from engine.request import FinishReason
from workbench.model.cells import Cell
from workbench.text import clean, seconds

MOST_PER_RECORD = 40
"""Lines of one kind from one record; the rest are counted."""


class EventKind(StrEnum):
    ARRIVED = "arrived"
    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    RESUMED = "resumed"
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
    EventKind.FINISHED: ("◆", Cell.FINISHED),
    EventKind.KNOB: ("!", None),
    EventKind.NOTICE: ("?", None),
    EventKind.REJECTED: ("◇", Cell.ABORTED),
    EventKind.FAULT: ("!", None),
}
FILTERS: tuple[tuple[str, frozenset[EventKind]], ...] = (
    ("all", frozenset(EventKind)),
    ("preemptions", frozenset({EventKind.PREEMPTED, EventKind.RESUMED})),
    ("ends", frozenset({EventKind.FINISHED, EventKind.REJECTED})),
    ("arrivals", frozenset({EventKind.ARRIVED, EventKind.ADMITTED, EventKind.REJECTED})),
    ("knobs", frozenset({EventKind.KNOB, EventKind.NOTICE, EventKind.FAULT})),
)


class Event(NamedTuple):
    step: int
    kind: EventKind
    id: str | None
    text: str
    """After the letter; clean."""
    aborted: bool = False


def events_of(it: Iteration, letter: Callable[[str], str]) -> Iterator[Event]:
    """The events of a record, in the order in which they happened."""
    for change in it.knobs:
        text = f"{change.name} {show(change.old)}→{show(change.new)}  v{change.version}"
        yield Event(it.step, EventKind.KNOB, None, text)
    for notice in it.notices:
        yield Event(it.step, EventKind.NOTICE, None, clean(notice))
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
        by = "itself" if victim.by == victim.id else letter(victim.by)
        text = f"preempted  by {by}: need {victim.need} free {victim.free}, {victim.lost_tokens} tok dropped"
        yield Event(it.step, EventKind.PREEMPTED, victim.id, text)
    for item in it.scheduled:
        if item.kind is Kind.RUNNING:
            continue
        hit = f", {item.computed_before} cached" if item.computed_before else ""
        if item.kind is Kind.NEW:
            yield Event(it.step, EventKind.ADMITTED, item.id, f"admitted   {item.phase} {item.num_tokens} tok{hit}")
        else:
            yield Event(it.step, EventKind.RESUMED, item.id, f"resumed    {item.phase} {item.num_tokens} tok{hit}")
    for done in it.finished:
        aborted = done.reason in (FinishReason.ABORT, FinishReason.ERROR)
        word = "aborted" if done.reason is FinishReason.ABORT else "failed" if aborted else "finished"
        detail = f" {clean(done.detail)}" if done.detail else ""
        text = f"{word:<9}  {done.output_len} tok  e2e {seconds(it.t_end - done.arrival)}  {done.reason}{detail}"
        yield Event(it.step, EventKind.FINISHED, done.id, text, aborted)
    if it.fault is not None:
        last = it.fault.strip().splitlines()[-1] if it.fault.strip() else "unknown"
        yield Event(it.step, EventKind.FAULT, None, f"engine fault: {clean(last)}")


def show(value: object) -> str:
    """A knob's value as a person writes it."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)
