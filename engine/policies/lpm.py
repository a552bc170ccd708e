"""Longest prefix match: who finds most of its prompt in the prefix cache is next, while that is still there.

Source: Zheng et al., "SGLang: Efficient Execution of Structured Language Model Programs" (2024) and its server's
scheduler. Requests that begin alike and are not cached yet would all compute the same beginning: only the first of
them keeps its place, the others wait behind everybody until it has filled the cache. With more than 128 waiting it is
first come, first served, as looking would cost too much.

Omission: nobody ages; a prompt that nobody shares waits until `patience` ends. SGLang defers only prompts of which at
most 32 tokens are cached; here what is not cached decides alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from engine.policies.base import PolicyEnv
from engine.policies.fcfs import Fcfs
from engine.request import Request

MOST_LOOKED_AT = 128
SHARED_TOKENS = 32


class Lpm(Fcfs):
    """Looks anew in each iteration, when somebody asks: then at no more than 128 requests."""

    name = "lpm"
    patience = 60.0
    exact = False

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._order = self._requests
        """In order of service: the queue itself, or those of it that were looked at."""
        self._stale = False
        self._looked: list[tuple[str, int]] = []
        self._prefixes: dict[str, dict[int, int]] = {}
        """A hash of the first N tokens, by id and N."""

    def begin(self) -> None:
        self._stale = True

    def add(self, request: Request) -> None:
        super().add(request)
        self._stale = True
        self._looked.clear()

    def readd(self, request: Request) -> None:
        super().readd(request)
        self._stale = True
        self._looked.clear()

    def head(self) -> Request:
        self._look()
        return next(iter(self._order.values()))

    def take(self, request: Request) -> None:
        super().take(request)
        self._order.pop(request.id, None)
        self._prefixes.pop(request.id, None)

    def remove(self, request: Request) -> None:
        self.take(request)

    def __iter__(self) -> Iterator[Request]:
        self._look()
        return iter(self._order.values())

    def _look(self) -> None:
        if not self._stale:
            return
        self._stale = False
        if len(self._requests) > MOST_LOOKED_AT or not self.env.config.enable_prefix_caching:
            self._order = self._requests
            return
        waiting = list(self._requests.values())
        cached = {request.id: self.env.cached_tokens(request) for request in waiting}
        looked = list(cached.items())
        if looked == self._looked and self._order is not self._requests:
            return
        self._looked = looked
        first: list[Request] = []
        deferred: list[Request] = []
        seen: dict[int, set[int]] = {}
        for request in waiting:
            length = cached[request.id] + SHARED_TOKENS
            if request.num_tokens >= length:
                if length not in seen:
                    seen[length] = {self._prefix(other, length) for other in first if other.num_tokens >= length}
                if self._prefix(request, length) in seen[length]:
                    deferred.append(request)
                    continue
            first.append(request)
            for length, prefixes in seen.items():
                if request.num_tokens >= length:
                    prefixes.add(self._prefix(request, length))
        first.sort(key=lambda request: -cached[request.id])
        self._order = OrderedDict((request.id, request) for request in [*first, *deferred])

    def _prefix(self, request: Request, length: int) -> int:
        known = self._prefixes.setdefault(request.id, {})
        if length not in known:
            known[length] = hash(tuple(request.token_ids[:length]))
        return known[length]
