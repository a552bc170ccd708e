"""Smallest (priority, arrival, id) first; the running request with the largest (priority, arrival) is the victim.

As in vLLM: a victim may have been scheduled already in the same iteration, ties go to the earliest in the running
list, and a preempted request gets no bonus for having run. A steady stream of urgent requests starves the others.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from engine.policies.base import WaitingQueue
from engine.request import Request


def _key(request: Request) -> tuple[int, float, str]:
    return request.priority, request.arrival or 0.0, request.id


class _Sorted:
    """Kept in descending order, so that the head is at the cheap end of the list."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._requests = sorted(requests, key=_key, reverse=True)

    @staticmethod
    def _descending(request: Request) -> tuple[int, float, tuple[int, ...]]:
        priority, arrival, id = _key(request)
        # A tuple of negated characters with a high end mark compares as the string does, reversed.
        return -priority, -arrival, (*(-ord(c) for c in id), 1)

    def add(self, request: Request) -> None:
        insort(self._requests, request, key=self._descending)

    readd = add

    def head(self) -> Request:
        return self._requests[-1]

    def pop(self) -> Request:
        return self._requests.pop()

    def remove(self, request: Request) -> None:
        at = bisect_left(self._requests, self._descending(request), key=self._descending)
        assert self._requests[at] is request
        del self._requests[at]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return reversed(self._requests)


class Priority:
    name = "priority"

    def queue(self, waiting: Sequence[Request] = ()) -> WaitingQueue:
        return _Sorted(waiting)

    def victim(self, running: Sequence[Request]) -> int:
        return max(range(len(running)), key=lambda i: (running[i].priority, running[i].arrival or 0.0))
