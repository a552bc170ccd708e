"""Requests whose time has not come.

Most have a planned arrival: they come in its order, ties by when they were planned. Others are held until another
request has ended (closed loop) and have a planned arrival from then on. Taking one out is cheap wherever it is; memory
follows the number of those that are left.

Invariant: whom a held one waits for is planned or held here, alive in the engine, or a stray's and looked for at the
next step. Nobody waits for itself through others, so that every held one is released in the end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from itertools import count

from engine.clock import whole_ns
from engine.request import Request


class Arrivals:
    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._heap: list[tuple[float, int, Request]] = []
        """Those that were taken out meanwhile are still in it."""
        self._serial = count()
        self._held: dict[str, str] = {}
        """Held id to the id of whom it waits for."""
        self._followers: dict[str, dict[str, None]] = {}
        """The other way round; in the order in which they came."""
        self._strays: list[tuple[Request, float]] = []
        """Held for somebody unknown, and since when."""

    def __len__(self) -> int:
        return len(self._requests)

    def __contains__(self, id: str) -> bool:
        return id in self._requests

    def __iter__(self) -> Iterator[Request]:
        """In the order in which they were planned."""
        return iter(self._requests.values())

    def plan(self, request: Request) -> None:
        assert request.arrival is not None and request.id not in self._requests
        self._requests[request.id] = request
        heapq.heappush(self._heap, (request.arrival, next(self._serial), request))

    def hold(self, request: Request, after: str, now: float, *, known: bool) -> None:
        """Keep one until `release(after)`. known: whether that will be called."""
        assert request.id not in self._requests
        self._requests[request.id] = request
        self._held[request.id] = after
        self._followers.setdefault(after, {})[request.id] = None
        if not known:
            self._strays.append((request, now))

    def holds(self, id: str) -> bool:
        """Whether this one waits for another: its arrival is not known yet."""
        return id in self._held

    def waits_for(self, id: str, other: str) -> bool:
        """Whether request `id` is `other`, or waits for it through however many held ones."""
        if id == other:
            return True
        if other not in self._followers:  # the usual case: a turn comes after those before it
            return False
        at: str | None = id
        while at is not None and at != other:
            at = self._held.get(at)
        return at is not None

    def release(self, id: str, now: float) -> None:
        """Request `id` has ended: whoever waits for it arrives `delay` seconds from `now`."""
        for follower in self._followers.pop(id, ()):
            del self._held[follower]
            self._plan_at(self._requests[follower], now)

    def release_strays(self, will_end: Callable[[str], bool]) -> None:
        """Those whose leader is still unknown: it is taken to have ended when they came."""
        if not self._strays:
            return
        strays, self._strays = self._strays, []
        for request, since in strays:
            after = self._held.get(request.id)
            if after is not None and self._requests[request.id] is request and not will_end(after):
                self._let_go(request.id, after)
                self._plan_at(request, since)

    def _plan_at(self, request: Request, end: float) -> None:
        request.arrival = whole_ns(end + request.delay)
        heapq.heappush(self._heap, (request.arrival, next(self._serial), request))

    def _let_go(self, id: str, after: str) -> None:
        del self._held[id]
        followers = self._followers[after]
        del followers[id]
        if not followers:
            del self._followers[after]

    def remove(self, id: str) -> Request | None:
        """Take one out; None when it is not here."""
        request = self._requests.pop(id, None)
        after = self._held.get(id)
        if after is not None:
            self._let_go(id, after)
        if len(self._heap) > 2 * len(self._requests) + 64:
            self._heap = [entry for entry in self._heap if self._requests.get(entry[2].id) is entry[2]]
            heapq.heapify(self._heap)
        return request

    def first(self) -> Request | None:
        """The next one to arrive, of those whose arrival is known."""
        while self._heap:
            request = self._heap[0][2]
            if self._requests.get(request.id) is request:
                return request
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> Iterator[Request]:
        """Take out those whose time has come, in order."""
        while (request := self.first()) is not None and request.arrival is not None and request.arrival <= now:
            heapq.heappop(self._heap)
            del self._requests[request.id]
            yield request
