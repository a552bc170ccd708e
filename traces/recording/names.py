"""Numbers in place of ids: requests are numbered in the order of arrival, and an id is written once.

An id that is used again after its end gets a new number. Whoever has no number (a refused request) is called by its id.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from traces.recording.lines import BadLine

KEEP_ENDED = 4096
"""Ended requests whose number is still known to the writer: a static batch lists them."""

Ref = int | str


class Numbers:
    """The writer's side. Memory is bounded by the live requests and KEEP_ENDED."""

    def __init__(self) -> None:
        self.next = 0
        self.of: dict[str, int] = {}
        self._ended: deque[tuple[str, int]] = deque()

    def give(self, id: str) -> int:
        number = self.of[id] = self.next
        self.next += 1
        return number

    def end(self, id: str) -> None:
        number = self.of.get(id)
        if number is None:
            return
        self._ended.append((id, number))
        if len(self._ended) > KEEP_ENDED:
            old, its = self._ended.popleft()
            if self.of.get(old) == its:
                del self.of[old]

    def refs(self, ids: Iterable[str]) -> list[Ref]:
        of = self.of
        return [of.get(id, id) for id in ids]


class Names:
    """The reader's side. find: looks up a number that was not met yet; it may raise BadLine."""

    def __init__(self, find: Callable[[int], str] | None = None) -> None:
        self.next = 0
        self._known: dict[int, str] = {}
        self._find = find

    def add(self, number: int, id: str) -> None:
        self._known[number] = id

    def add_all(self, numbers: Iterable[int], ids: Iterable[str]) -> None:
        self._known.update(zip(numbers, ids, strict=True))

    def of(self, ref: Ref) -> str:
        if type(ref) is str:
            return ref
        try:
            return self._known[ref]  # type: ignore[index]
        except (KeyError, TypeError):
            pass
        if self._find is None or type(ref) is not int:
            raise BadLine(f"names request number {ref!r}, which has not arrived")
        id = self._known[ref] = self._find(ref)
        return id

    def all(self, refs: Iterable[Ref]) -> tuple[str, ...]:
        known = self._known
        try:
            return tuple([known[ref] for ref in refs])  # type: ignore[index]
        except (KeyError, TypeError):
            return tuple([self.of(ref) for ref in refs])
