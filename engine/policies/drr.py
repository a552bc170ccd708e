"""Deficit round robin: in each round every client may have a quantum of tokens, times its weight.

Source: Shreedhar and Varghese, "Efficient Fair Queueing using Deficit Round-Robin" (SIGCOMM 1995), with the changes
that Cao et al., "Locality-aware Fair Scheduling in LLM Serving" (2025) make for costs known only afterwards: a client
is served while its deficit is positive, which the last request may turn into a debt, and output tokens are taken off
as they are sampled. When no waiting client has a positive deficit, a round begins. A client that comes back keeps what
is left of its debt after the rounds it missed, and no savings.

Coarser than `fair`: a client gets several requests in a row, up to a quantum, which keeps prompts that begin alike
together. Invariant: the deficit of a waiting client is at most one quantum. Omission: rounds are not timed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.policies.accounts import Accounts
from engine.policies.base import PolicyEnv
from engine.policies.clients import Rank
from engine.request import Request

DEFAULT_SHARE = 20
"""The pool's tokens over the default quantum."""


class Drr(Accounts):
    """A deficit is never stored: it is the quanta of all rounds so far less what the client has spent (its account)."""

    name = "drr"
    patience = 0.0
    victim = "greediest"

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._quantum = self._wanted_quantum()
        self._round = 0
        self._turns: dict[str, int] = {}
        """Places of waiting clients in the ring, by when they joined it."""
        self._joined = 0

    def begin(self) -> None:
        if self.env.config is self._config:
            return
        deficits = {client: self.deficit(client) for client in self._accounts}
        super().begin()
        self._quantum = self._wanted_quantum()
        for client, deficit in deficits.items():
            self._accounts[client] = self._round * self._share(client) - deficit
        self.touch_all()

    def walk(self, client: str, queue: Mapping[str, Request]) -> Iterator[tuple[Rank, Request]]:
        """Ranked by the round in which the client can be served, and its place in the ring."""
        spent, share = self._accounts[client], self._share(client)
        for request in queue.values():
            yield (spent // share + 1, self._turns[client], client), request
            spent += self.price(request)

    def joins(self, client: str) -> None:
        self.put_down(client, max(self._accounts.get(client, 0.0), self._round * self._share(client)))
        self._joined += 1
        self._turns[client] = self._joined

    def leaves(self, client: str) -> None:
        del self._turns[client]

    def take(self, request: Request) -> None:
        first = self.first
        assert first is not None
        self._round = max(self._round, int(first[0]))
        super().take(request)

    def charge(self, client: str, tokens: int) -> None:
        self.put_down(client, self._accounts.get(client, self._round * self._share(client)) + tokens)
        self.touch(client)

    def deficit(self, client: str) -> float:
        return self._round * self._share(client) - self._accounts.get(client, 0.0)

    def service(self, client: str) -> float:
        """Over the client's weight; quanta it let pass count as service."""
        return self._accounts.get(client, 0.0) / self.weight(client)

    def _share(self, client: str) -> float:
        return self._quantum * self.weight(client)

    def _wanted_quantum(self) -> int:
        config = self.env.config
        return config.drr_quantum or max(1, config.usable_blocks * config.block_size // DEFAULT_SHARE)
