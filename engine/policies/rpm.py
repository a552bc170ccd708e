"""A limit of requests a minute for each client, as many services have it. A bad example, to be compared with `fair`.

The first waiting request whose client is below its limit is next. It is not work conserving: a server with nothing
else to do leaves a client waiting that has had its share of the minute, and a request counts the same whether it is
ten tokens or ten thousand. A preempted request was let in before and is not counted again.

Omission: the limit is the same for everybody.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping

from engine.policies.base import PolicyEnv
from engine.policies.clients import PerClient, Rank
from engine.request import Request

MINUTE = 60.0


class Rpm(PerClient):
    name = "rpm"
    patience = 0.0

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._limit = env.config.requests_per_minute
        self._turns: dict[str, int] = {}
        self._back, self._front = 0, 0
        self._admitted: dict[str, deque[float]] = {}
        """When, for each client with admissions in the last minute."""
        self._log: deque[tuple[float, str]] = deque()
        """The same, of all clients."""

    def begin(self) -> None:
        if self._limit != self.env.config.requests_per_minute:
            self._limit = self.env.config.requests_per_minute
            self.touch_all()
        while self._log and self._log[0][0] + MINUTE <= self.env.now:
            _, client = self._log.popleft()
            times = self._admitted[client]
            times.popleft()
            if not times:
                del self._admitted[client]
            self.touch(client)

    def add(self, request: Request) -> None:
        self._back += 1
        self._turns[request.id] = self._back
        super().add(request)

    def readd(self, request: Request) -> None:
        self._front -= 1
        self._turns[request.id] = self._front
        super().readd(request)

    def take(self, request: Request) -> None:
        if not request.num_preemptions:
            self._admitted.setdefault(request.client, deque()).append(self.env.now)
            self._log.append((self.env.now, request.client))
        super().take(request)

    def remove(self, request: Request) -> None:
        super().remove(request)
        del self._turns[request.id]

    def walk(self, client: str, queue: Mapping[str, Request]) -> Iterator[tuple[Rank, Request]]:
        """Ranked by whether the limit is reached, then by who is longer in the queue."""
        room = self._limit - len(self._admitted.get(client, ()))
        shut = False
        for request in queue.values():
            counted = not request.num_preemptions
            shut = shut or (counted and room <= 0)
            yield (float(shut), self._turns[request.id], client), request
            room -= counted

    def keeps_back(self, request: Request) -> str | None:
        times = self._admitted.get(request.client, ())
        if request.num_preemptions or len(times) < self._limit:
            return None
        return (
            f"client {request.client}: {len(times)} requests started in the last 60 s, the limit is {self._limit}; "
            f"the next in {self._opens(request.client) - self.env.now:.1f} s"
        )

    def wake(self) -> float | None:
        first = self.first
        if first is None or not first[0]:
            return None
        return min(self._opens(client) for client in self._queues)

    def _opens(self, client: str) -> float:
        """When a client that has reached its limit may start its next request."""
        times = self._admitted[client]
        return times[len(times) - self._limit] + MINUTE
