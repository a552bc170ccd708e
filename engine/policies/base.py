"""What a scheduling policy decides: the order of the waiting queue, and whom to preempt.

Everything else (budget, blocks, head-of-line blocking) is the scheduler's and the same under every policy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from engine.request import Request


class WaitingQueue(Protocol):
    """Requests in order of service. New and preempted ones live here alike."""

    def add(self, request: Request) -> None:
        """A request that arrives."""
        ...

    def readd(self, request: Request) -> None:
        """A request that was preempted."""
        ...

    def head(self) -> Request: ...

    def pop(self) -> Request:
        """Remove and return the head."""
        ...

    def remove(self, request: Request) -> None: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Request]:
        """In order of service; lazy, so that looking at the first few is cheap."""
        ...


class Policy(Protocol):
    name: str

    def queue(self, waiting: Sequence[Request] = ()) -> WaitingQueue:
        """A queue holding `waiting`, which come in some other policy's order when the policy changes."""
        ...

    def victim(self, running: Sequence[Request]) -> int:
        """Index of the running request to preempt when blocks are short."""
        ...
