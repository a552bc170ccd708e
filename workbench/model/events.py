"""The lines of the events panel, one for each thing worth telling in a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

from engine.records import Cause, Finished, Iteration, Kind, Preempted
from engine.request import FinishReason
from engine.view import EngineView, RequestView
from workbench.model.cells import Cell
from workbench.text import clean, seconds, short

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
    cut: bool = False
    """Finished with fewer tokens than it asked for."""


def events_of(
    it: Iteration, view: EngineView, name: Callable[[str], str], batch: tuple[str, ...] = (), storm: str = ""
) -> Iterator[Event]:
    """The events of a record, in the order in which they happened, the numbers first: a panel cuts the ends of lines.

    `view` is the state after it; `batch` and `storm` are those before it. `name`: how a request is called.
    """
    if it.rebuilt is not None:
        new = it.rebuilt
        text = f"built anew: {new.num_blocks - 1} blocks of {new.block_size}, {new.dtype} {clean(new.model)}"
        yield Event(it.step, EventKind.KNOB, None, text)
    for change in it.knobs:
        text = f"{change.name} {show(change.old)}→{show(change.new)}  v{change.version}"
        yield Event(it.step, EventKind.KNOB, None, text)
    for notice in it.notices:
        told = notice.startswith(STORM)
        text = storm_text(notice) if told else clean(notice)
        yield Event(it.step, EventKind.STORM if told else EventKind.NOTICE, None, text)
    for n, arrived in enumerate(it.arrived):
        if n == MOST_PER_RECORD:
            yield Event(it.step, EventKind.ARRIVED, None, f"and {len(it.arrived) - n} more arrived")
            break
        text = f"arrived   {len(arrived.prompt_ids)} tok, max {arrived.max_tokens}  {clean(arrived.client)}"
        yield Event(it.step, EventKind.ARRIVED, arrived.id, text)
    for n, rejected in enumerate(it.rejected):
        if n == MOST_PER_RECORD:
            yield Event(it.step, EventKind.REJECTED, None, f"and {len(it.rejected) - n} more rejected")
            break
        yield Event(it.step, EventKind.REJECTED, None, f"rejected {short(rejected.id)}: {brief(rejected.reason)}")
    for victim in it.preempted:
        kind = EventKind.SWAPPED_OUT if victim.swapped_blocks else EventKind.PREEMPTED
        word = "swap out" if victim.swapped_blocks else "preempted"
        yield Event(it.step, kind, victim.id, f"{word:<9} {cause_text(victim, name)}, {loss_text(victim)}")
    fresh = set(it.batch) - set(batch)
    if fresh:
        padding = f", {it.slots.padding} padding tokens" if it.slots.padding else ""
        yield Event(it.step, EventKind.BATCH, None, f"batch of {len(it.batch)} formed{padding}")
    for item in it.scheduled:
        if item.kind is Kind.RUNNING:
            continue
        hit = f", {item.computed_before} cached" if item.computed_before else ""
        if item.kind is Kind.SWAPPED_IN:
            yield Event(it.step, EventKind.SWAPPED_IN, item.id, f"swap in   {len(item.new_blocks)} blocks back")
        elif item.kind is Kind.NEW:
            yield Event(it.step, EventKind.ADMITTED, item.id, f"admitted  {item.phase} {item.num_tokens} tok{hit}")
        else:
            yield Event(it.step, EventKind.RESUMED, item.id, f"resumed   {item.phase} {item.num_tokens} tok{hit}")
    if it.copied.num_bytes:
        out, back, size = it.copied
        text = f"copied    {out} blocks out, {back} in: {bytes_text(size)} in {seconds(it.timings.swap)}"
        yield Event(it.step, EventKind.COPIED, None, text)
    if it.storm and not storm and not any(notice.startswith(STORM) for notice in it.notices):
        yield Event(it.step, EventKind.STORM, None, storm_text(it.storm))
    elif storm and not it.storm:
        yield Event(it.step, EventKind.STORM, None, "the storm is over")
    for done in it.finished:
        aborted = done.reason in (FinishReason.ABORT, FinishReason.ERROR)
        cut = not aborted and cut_short(view.requests.get(done.id))
        yield Event(it.step, EventKind.FINISHED, done.id, _end_text(done, it, view, cut), aborted, cut)
    if it.fault is not None:
        last = it.fault.strip().splitlines()[-1] if it.fault.strip() else "unknown"
        yield Event(it.step, EventKind.FAULT, None, f"engine fault: {clean(last)}")


def _end_text(done: Finished, it: Iteration, view: EngineView, cut: bool) -> str:
    taken, detail = seconds(it.t_end - done.arrival), brief(done.detail)
    if cut:
        asked = view.requests[done.id].params.max_tokens
        of = f"/{asked}" if asked is not None else ""
        return f"cut short {done.output_len}{of} tok: {detail or cutter(view)}, {taken}"
    if done.reason is FinishReason.ERROR:
        return f"failed    {detail or done.reason}, {done.output_len} tok in {taken}"
    if done.reason is FinishReason.ABORT:
        why = f", {detail}" if detail not in ("", "aborted") else ""
        return f"aborted   {done.output_len} tok in {taken}{why}"
    return f"finished  {done.output_len} tok in {taken}, {detail or done.reason}"


def cut_short(request: RequestView | None) -> bool:
    """Whether a finished request got fewer tokens than it asked for: the pool or max_model_len ended it.

    Who sets no max_tokens asks for what max_model_len leaves; the engine gives a reason where even that was not there.
    """
    if request is None or request.finish_reason is not FinishReason.LENGTH:
        return False
    asked = request.params.max_tokens
    return bool(request.finish_detail) or (asked is not None and request.output_len < asked)


def cutter(view: EngineView) -> str:
    """What cut a request short about which the engine gives no detail."""
    return f"max_model_len {show(view.knobs.get('max_model_len'))}"


_BRIEF = (
    (re.compile(r"^it has \d+ tokens, "), ""),
    (re.compile(r"\bthe (prompt|pool) has (?=\d+ tok)"), r"\1 "),
    (re.compile(r"\bthe (?=(prompt|pool) (has|needs) )"), ""),
    (re.compile(r" do not fit into (the )?(?=\d)"), " exceed "),
    (re.compile(r" KV blocks that are left"), " KV blocks"),
    (re.compile(r" KV blocks are full"), " blocks full"),
    (re.compile(r" KV blocks"), " blocks"),
    (re.compile(r" need up to (?=\d)"), " want "),
    (re.compile(r"(?<=\d) tokens\b"), " tok"),
)


def brief(text: str) -> str:
    """A sentence of the engine in fewer words; what it does not know stays as it is."""
    text = clean(text)
    for pattern, words in _BRIEF:
        text = pattern.sub(words, text)
    return text


def storm_text(told: str) -> str:
    """A storm's cause first, then the cure, then how bad it is."""
    parts = brief(told.removeprefix(f"{STORM}: ")).split("; ")
    if len(parts) == 3:
        parts = [*parts[1:], parts[0]]
    return f"storm: {'; '.join(parts)}"


def cause_text(victim: Preempted, name: Callable[[str], str]) -> str:
    """Why a request was preempted, in few words."""
    if victim.cause is Cause.REBUILD:
        return "the engine was built anew"
    if victim.cause is Cause.SHRINK:
        return f"pool shrunk: need {victim.need} free {victim.free}"
    by = "itself" if victim.by == victim.id else name(victim.by)
    if victim.cause is Cause.DISPLACED:
        return f"displaced by {by}"
    return f"by {by}: need {victim.need} free {victim.free}"


def loss_text(victim: Preempted) -> str:
    if victim.swapped_blocks:
        return f"{victim.swapped_blocks} blocks kept"
    return f"{victim.lost_tokens} tok lost"


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
