"""`Arrivals`: requests whose time has not come.

Ordered by planned arrival, ties by when they were planned. Taking one out is cheap wherever it is; memory follows the
number of those that are left.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import count

from engine.request import Request


class Arrivals:
    def __init__(self) -> None:
        self._requests: dict[str, Request] = {}
        self._heap: list[tuple[float, int, Request]] = []
        """Those that were taken out meanwhile are still in it."""
        self._serial = count()

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

    def remove(self, id: str) -> Request | None:
        """Take one out; None when it is not here."""
        request = self._requests.pop(id, None)
        if len(self._heap) > 2 * len(self._requests) + 64:
            self._heap = [entry for entry in self._heap if self._requests.get(entry[2].id) is entry[2]]
            heapq.heapify(self._heap)
        return request

    def first(self) -> Request | None:
        """The next one to arrive."""
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
