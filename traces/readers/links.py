"""Which request waits for which: ids of the source and turns of sessions become `after`, which a run can follow.

Invariant: every `after` that is left names a request of the list, and no request waits for itself, however far round.
What had to be mended is counted: a cycle is broken at the row that came first, an orphan becomes a root.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise


@dataclass(slots=True)
class Link:
    """One request, as far as it matters who waits for whom. `index` into the list says which one."""

    id: str
    """Unique."""
    session: str | None = None
    turn: int | None = None
    after: str | None = None
    """The source's id."""
    failed: bool = False


@dataclass(slots=True)
class Resolved:
    after: list[int | None]
    """Index of the request each one waits for."""
    notes: list[str] = field(default_factory=list)


def resolve(links: Sequence[Link], by_source: dict[str, int], *, closed_loop: bool) -> Resolved:
    """links: in order of arrival. by_source: the source's own id to index, the first that had it."""
    after: list[int | None] = [None] * len(links)
    orphans = 0
    for index, link in enumerate(links):
        if link.after is not None:
            after[index] = by_source.get(link.after)
            orphans += after[index] is None
    late = _follow_sessions(links, after) if closed_loop else 0
    cycles = _break_cycles(after)
    skipped = 0
    for index, parent in enumerate(after):
        first = parent
        while parent is not None and links[parent].failed:
            parent = after[parent]
        after[index] = parent
        skipped += parent != first
    notes = []
    if late:
        notes.append(f"{late} rows come before the turn that they follow; the order of turns holds")
    if orphans:
        notes.append(f"{orphans} rows follow a request that is not in the file: they start by themselves")
    if cycles:
        notes.append(f"{cycles} rows that follow each other in a circle: broken at the first of them")
    if skipped:
        notes.append(f"{skipped} rows follow one that failed at its source: they follow the one before it")
    return Resolved(after, notes)


def _follow_sessions(links: Sequence[Link], after: list[int | None]) -> int:
    """Turns without an `after` follow the turn before. Returns how many came earlier than that."""
    sessions: dict[str, list[int]] = {}
    for index, link in enumerate(links):
        if link.session is not None:
            sessions.setdefault(link.session, []).append(index)
    late = 0
    for rows in sessions.values():
        if all(links[index].turn is not None for index in rows):
            rows.sort(key=lambda index: links[index].turn or 0)
        for before, index in pairwise(rows):
            if links[index].after is None:
                after[index] = before
                late += index < before
    return late


def _break_cycles(after: list[int | None]) -> int:
    done = [False] * len(after)
    cycles = 0
    for start in range(len(after)):
        path: list[int] = []
        on_path: set[int] = set()
        for index in _ancestors(start, after, done):
            if index in on_path:
                after[min(path[path.index(index) :])] = None
                cycles += 1
                break
            path.append(index)
            on_path.add(index)
        for index in path:
            done[index] = True
    return cycles


def _ancestors(start: int, after: list[int | None], done: list[bool]) -> Iterator[int]:
    index: int | None = start
    while index is not None and not done[index]:
        yield index
        index = after[index]
