"""First come, first served. Preempted requests go back to the front; the youngest running one is the victim."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from engine.policies.base import Policy, PolicyEnv
from engine.request import Request


class Fcfs(Policy):
    """An ordered dict by id: both ends and any removal in constant time."""

    name = "fcfs"
    patience = 0.0
    exact = True

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._requests: OrderedDict[str, Request] = OrderedDict()

    def add(self, request: Request) -> None:
        self._requests[request.id] = request

    def readd(self, request: Request) -> None:
        self._requests[request.id] = request
        self._requests.move_to_end(request.id, last=False)

    def head(self) -> Request:
        return next(iter(self._requests.values()))

    def take(self, request: Request) -> None:
        del self._requests[request.id]

    remove = take

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())
