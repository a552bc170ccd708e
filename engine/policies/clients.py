"""A waiting queue made of one first-in-first-out queue for each client, and an order of the clients.

A client that has 10,000 requests waiting costs as much as one with a single request: only the front of each client's
queue is compared with the others. Invariant: a client is in the order exactly while it has requests waiting.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterator, Mapping

from sortedcontainers import SortedList

from engine.policies.base import Policy, PolicyEnv
from engine.request import Request

Rank = tuple[float, float, str]
"""Smallest first; ends with the client's name, so no two clients share one."""


class PerClient(Policy):
    """A preempted request goes to the front of its own client's queue."""

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._queues: dict[str, OrderedDict[str, Request]] = {}
        self._size = 0
        self._ranks: dict[str, Rank] = {}
        self._order: SortedList = SortedList()
        self._stale: set[str] = set()

    @abstractmethod
    def walk(self, client: str, queue: Mapping[str, Request]) -> Iterator[tuple[Rank, Request]]:
        """The waiting requests of a client in order, each with the rank the client has once those before it are taken.

        Lazy, and the ranks never fall.
        """

    def joins(self, client: str) -> None:
        """A client that had nothing waiting is about to get a request."""

    def leaves(self, client: str) -> None:
        """A client has nothing waiting any more."""

    def touch(self, client: str) -> None:
        """The rank of a client may have changed."""
        self._stale.add(client)

    def touch_all(self) -> None:
        self._stale.update(self._queues)

    @property
    def first(self) -> Rank | None:
        """The smallest rank of all clients that wait."""
        self._settle()
        rank: Rank | None = self._order[0] if self._order else None
        return rank

    def add(self, request: Request) -> None:
        self._put(request)

    def readd(self, request: Request) -> None:
        self._put(request)
        self._queues[request.client].move_to_end(request.id, last=False)

    def head(self) -> Request:
        rank = self.first
        assert rank is not None, "the queue is empty"
        return next(iter(self._queues[rank[-1]].values()))

    def take(self, request: Request) -> None:
        self.remove(request)

    def remove(self, request: Request) -> None:
        queue = self._queues[request.client]
        del queue[request.id]
        self._size -= 1
        self._stale.add(request.client)
        if not queue:
            del self._queues[request.client]
            self.leaves(request.client)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Request]:
        self._settle()
        fresh = ((rank, self.walk(rank[-1], self._queues[rank[-1]])) for rank in self._order)
        begun: list[tuple[Rank, Request, Iterator[tuple[Rank, Request]]]] = []
        upcoming = next(fresh, None)
        while upcoming is not None or begun:
            if upcoming is not None and not (begun and begun[0][0] < upcoming[0]):
                rest = upcoming[1]
                yield next(rest)[1]
                upcoming = next(fresh, None)
            else:
                _, request, rest = heapq.heappop(begun)
                yield request
            if (further := next(rest, None)) is not None:
                heapq.heappush(begun, (*further, rest))

    def _put(self, request: Request) -> None:
        client = request.client
        queue = self._queues.get(client)
        if queue is None:
            self.joins(client)
            queue = self._queues[client] = OrderedDict()
        queue[request.id] = request
        self._size += 1
        self._stale.add(client)

    def _settle(self) -> None:
        """Bring the order up to date. Charges only mark a client, as one iteration brings it many."""
        while self._stale:
            client = self._stale.pop()
            queue = self._queues.get(client)
            before = self._ranks.pop(client, None)
            now = None if queue is None else next(self.walk(client, queue))[0]
            if now is not None:
                self._ranks[client] = now
            if now != before:
                if before is not None:
                    self._order.remove(before)
                if now is not None:
                    self._order.add(now)
