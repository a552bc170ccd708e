"""`WaitingQueue`: a policy's queue, and the one who has waited longest.

The policy says who is next. Policies that could leave somebody waiting for ever have a `patience`: who has waited
longer than that is next, whatever the policy says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sortedcontainers import SortedKeyList

from engine.policies import Policy
from engine.request import Request


class WaitingQueue:
    def __init__(self, policy: Policy, age: Callable[[Request], tuple[float, int]]) -> None:
        """age: sorts the oldest first."""
        self.policy = policy
        self._oldest: SortedKeyList | None = SortedKeyList(key=age) if policy.patience else None

    def add(self, request: Request) -> None:
        self.policy.add(request)
        if self._oldest is not None:
            self._oldest.add(request)

    def readd(self, request: Request) -> None:
        self.policy.readd(request)
        if self._oldest is not None:
            self._oldest.add(request)

    def take(self, request: Request) -> None:
        self.policy.take(request)
        if self._oldest is not None:
            self._oldest.remove(request)

    def remove(self, request: Request) -> None:
        self.policy.remove(request)
        if self._oldest is not None:
            self._oldest.remove(request)

    def head(self) -> Request:
        """Who is next. Not for an empty queue."""
        patience = self.policy.patience_seconds if self._oldest is not None else 0.0
        if patience and self._oldest is not None:
            oldest: Request = self._oldest[0]
            if self.policy.env.now - (oldest.arrival or 0.0) > patience:
                return oldest
        return self.policy.head()

    def __len__(self) -> int:
        return len(self.policy)

    def __iter__(self) -> Iterator[Request]:
        """In the policy's order; lazy."""
        return iter(self.policy)
