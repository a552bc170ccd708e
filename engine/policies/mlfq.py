"""Multi-level feedback queue with skip-join: short answers finish early although nobody knows which are short.

Source: Wu et al., "Fast Distributed Inference Serving for Large Language Models" (FastServe, 2023), counted in
tokens instead of milliseconds so that a run repeats. Levels have quanta that double. A request joins the first level
whose quantum holds its prompt, since anything above would only be passed through; when it has used up the quantum of
its level it moves one down. Who waits longer than `aging` is served as one of the first level. Running requests of a
lower level give their places to heads of a higher one.

Invariant: the first in a level is the one that has been in it longest. Tokens computed again and tokens found in the
prefix cache use up nothing. Omission: swapping out ahead of need; the KV of displaced requests goes when they do.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

from sortedcontainers import SortedList

from engine.policies.base import Policy, PolicyEnv
from engine.policies.victims import lowest
from engine.request import Request

Place = tuple[float, int, str]
"""Since when, a number to keep the order of equal times, id."""


class Mlfq(Policy):
    """Nobody is moved when it has waited long enough: those who have are the front of their level's queue."""

    name = "mlfq"
    patience = 0.0
    victim = "lowest"
    preemptive = True
    counts = True
    aging = 0.3

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._requests: dict[str, Request] = {}
        self._places: dict[str, Place] = {}
        self._queues: dict[int, SortedList] = {}
        self._levels: dict[str, int] = {}
        self._used: dict[str, int] = {}
        """Of the quantum of its level. Levels and use are kept from the first arrival until a request is gone."""
        self._count = 0

    def add(self, request: Request) -> None:
        self._levels.setdefault(request.id, self._first_level(request.num_prompt))
        self._put(request, self.env.now if request.arrival is None else request.arrival)

    def readd(self, request: Request) -> None:
        self._levels.setdefault(request.id, self._first_level(request.num_prompt))
        self._put(request, self.env.now)

    def head(self) -> Request:
        _, _, (_, _, id) = min(self._position(level, queue[0]) for level, queue in self._queues.items())
        return self._requests[id]

    def take(self, request: Request) -> None:
        level, place = self._levels[request.id], self._places[request.id]
        if level and self._position(level, place)[0] == 0:
            self._levels[request.id] = 0
            self._used[request.id] = 0
        self._drop(request, level)

    def remove(self, request: Request) -> None:
        self._drop(request, self._levels[request.id])
        self.ended(request)

    def ended(self, request: Request) -> None:
        self._levels.pop(request.id, None)
        self._used.pop(request.id, None)

    def displaced(self, running: Sequence[Request]) -> int | None:
        if not running:
            return None
        head = self.head()
        level = self._position(self._levels[head.id], self._places[head.id])[0]
        index = lowest(running, self)
        return index if self.level(running[index]) > level else None

    def served(self, request: Request, start: int, num_tokens: int, samples: bool) -> None:
        level = self._levels.get(request.id)
        if level is None:  # ran already when this policy took over
            level = self._first_level(request.num_prompt)
        used = self._used.get(request.id, 0) + max(0, start + num_tokens - max(start, request.high_water))
        while used >= self._quantum(level):
            used -= self._quantum(level)
            level += 1
        self._levels[request.id] = level
        self._used[request.id] = used

    def level(self, request: Request) -> float:
        return self._levels.get(request.id, 0)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        levels = (self._positions(level, queue) for level, queue in self._queues.items())
        for _, _, (_, _, id) in heapq.merge(*levels):
            yield self._requests[id]

    def _positions(self, level: int, queue: SortedList) -> Iterator[tuple[int, float, Place]]:
        return (self._position(level, place) for place in queue)

    def _position(self, level: int, place: Place) -> tuple[int, float, Place]:
        """Effective level, since when it has been in it, and the place."""
        since, aging = place[0], self.aging_seconds
        if level and aging and since + aging <= self.env.now:
            return 0, since + aging, place
        return level, since, place

    def _put(self, request: Request, since: float) -> None:
        self._count += 1
        place = self._places[request.id] = (since, self._count, request.id)
        self._requests[request.id] = request
        self._queues.setdefault(self._levels[request.id], SortedList()).add(place)

    def _drop(self, request: Request, level: int) -> None:
        del self._requests[request.id]
        queue = self._queues[level]
        queue.remove(self._places.pop(request.id))
        if not queue:
            del self._queues[level]

    def _first_level(self, prompt: int) -> int:
        return max(0, (-(-prompt // self.env.config.mlfq_quantum) - 1).bit_length())

    def _quantum(self, level: int) -> int:
        return self.env.config.mlfq_quantum << level
