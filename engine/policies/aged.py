"""A waiting queue in order of size, where waiting makes a request smaller: size / (1 + wait / aging).

Aging changes the order of any two requests at a moment of their own, so no sorted list can hold it. Requests are put
together by size, rounded to a sixteenth of an octave; within such a group the older one always comes first, and only
the fronts of the groups are compared. There are at most a few hundred groups, however many requests wait. Without
aging there is one group, in exact order of size.
"""

from __future__ import annotations

import heapq
import math
from abc import abstractmethod
from collections.abc import Iterator

from sortedcontainers import SortedList

from engine.policies.base import Policy, PolicyEnv
from engine.request import Request

STEPS_PER_OCTAVE = 16

Rank = tuple[float, float, str]
"""Size, arrival, id."""


class Aged(Policy):
    """`size` of a request must not change while it waits, except by a live change of a knob."""

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._requests: dict[str, Request] = {}
        self._entries: dict[str, tuple[int, Rank]] = {}
        self._groups: dict[int, SortedList] = {}
        self._fronts: list[tuple[Rank, int]] = []
        """A heap of the groups' first requests as they rank at `_as_of`, and of outdated ones."""
        self._as_of = env.now
        self._knobs = self._look()

    @abstractmethod
    def size(self, request: Request) -> float:
        """At least 1."""

    def rank(self, request: Request) -> Rank:
        """How a request would rank in the queue now."""
        return self._aged(self._entry(request)[1])

    def begin(self) -> None:
        knobs = self._look()
        if knobs != self._knobs:
            self._knobs = knobs
            waiting = list(self._requests.values())
            self._groups.clear()
            self._fronts.clear()
            for request in waiting:
                self.add(request)

    def add(self, request: Request) -> None:
        group, entry = self._entry(request)
        self._requests[request.id] = request
        self._entries[request.id] = group, entry
        entries = self._groups.setdefault(group, SortedList())
        entries.add(entry)
        if entries[0] is entry:
            heapq.heappush(self._fronts, (self._aged(entry), group))

    def readd(self, request: Request) -> None:
        self.add(request)

    def head(self) -> Request:
        if self._as_of != self.env.now:
            self._as_of = self.env.now
            self._fronts = [(self._aged(entries[0]), group) for group, entries in self._groups.items()]
            heapq.heapify(self._fronts)
        while True:
            rank, group = self._fronts[0]
            entries = self._groups.get(group)
            if entries and entries[0][-1] == rank[-1]:
                return self._requests[rank[-1]]
            heapq.heappop(self._fronts)

    def take(self, request: Request) -> None:
        self.remove(request)

    def remove(self, request: Request) -> None:
        del self._requests[request.id]
        group, entry = self._entries.pop(request.id)
        entries = self._groups[group]
        was_first = entries[0] == entry
        entries.remove(entry)
        if not entries:
            del self._groups[group]
        elif was_first:
            heapq.heappush(self._fronts, (self._aged(entries[0]), group))

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        for rank in heapq.merge(*(map(self._aged, entries) for entries in self._groups.values())):
            yield self._requests[rank[-1]]

    def _look(self) -> tuple[float, ...]:
        """The knobs that the order hangs on."""
        return self.aging_seconds, self.env.config.prediction_noise, float(self.env.config.max_model_len or 0)

    def _entry(self, request: Request) -> tuple[int, Rank]:
        size, arrival = self.size(request), request.arrival or 0.0
        if not self._knobs[0]:
            return 0, (size, arrival, request.id)
        group = round(math.log2(size) * STEPS_PER_OCTAVE)
        return group, (2.0 ** (group / STEPS_PER_OCTAVE), arrival, request.id)

    def _aged(self, entry: Rank) -> Rank:
        aging = self._knobs[0]
        if not aging:
            return entry
        size, arrival, id = entry
        return size / (1 + max(0.0, self.env.now - arrival) / aging), arrival, id
