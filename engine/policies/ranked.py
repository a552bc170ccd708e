"""A waiting queue kept in order of a fixed key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

from sortedcontainers import SortedKeyList

from engine.policies.base import Policy, PolicyEnv
from engine.request import Request


class Ranked(Policy):
    """Smallest `key` first. The key of a request must not change while it waits (see `resort`)."""

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._requests: SortedKeyList = SortedKeyList(key=self.key)

    @abstractmethod
    def key(self, request: Request) -> tuple[float, float, str]:
        """Must tell any two requests apart: end it with the id."""

    def add(self, request: Request) -> None:
        self._requests.add(request)

    def readd(self, request: Request) -> None:
        self._requests.add(request)

    def head(self) -> Request:
        head: Request = self._requests[0]
        return head

    def take(self, request: Request) -> None:
        self._requests.remove(request)

    def remove(self, request: Request) -> None:
        self._requests.remove(request)

    def resort(self) -> None:
        """Order all waiting requests anew, after the keys have changed."""
        self._requests = SortedKeyList(self._requests, key=self.key)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests)
