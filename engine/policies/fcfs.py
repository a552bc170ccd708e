"""First come, first served. Preempted requests go back to the front; the youngest running one is the victim."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

from engine.policies.base import WaitingQueue
from engine.request import Request


class _Fifo:
    """An ordered dict by id: both ends and any removal in constant time."""

    def __init__(self) -> None:
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def add(self, request: Request) -> None:
        self._requests[request.id] = request

    def readd(self, request: Request) -> None:
        self._requests[request.id] = request
        self._requests.move_to_end(request.id, last=False)

    def head(self) -> Request:
        return next(iter(self._requests.values()))

    def pop(self) -> Request:
        return self._requests.popitem(last=False)[1]

    def remove(self, request: Request) -> None:
        del self._requests[request.id]

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())


class Fcfs:
    name = "fcfs"

    def queue(self, waiting: Sequence[Request] = ()) -> WaitingQueue:
        fifo = _Fifo()
        for request in sorted(waiting, key=lambda r: r.arrival or 0.0):
            fifo.add(request)
        return fifo

    def victim(self, running: Sequence[Request]) -> int:
        return len(running) - 1
