"""Least counter first: the client that has had the least service is next. A bad example, to be compared with `fair`.

It is VTC without the lift (the baseline of the same name in the paper by Sheng et al.). Service that was not asked for
counts as saved: a client that comes back after a pause has the server to itself until it has caught up, and the
others starve meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from engine.policies.accounts import Accounts
from engine.policies.clients import Rank
from engine.request import Request


class Lcf(Accounts):
    name = "lcf"
    victim = "greediest"

    def walk(self, client: str, queue: Mapping[str, Request]) -> Iterator[tuple[Rank, Request]]:
        counter, weight = self.service(client), self.weight(client)
        for request in queue.values():
            yield (counter, 0.0, client), request
            counter += self.price(request) / weight

    def charge(self, client: str, tokens: int) -> None:
        self.put_down(client, self.service(client) + tokens / self.weight(client))
        self.touch(client)

    def service(self, client: str) -> float:
        """Weighted tokens over the client's weight; under `fair` with the lifts."""
        return self._accounts.get(client, 0.0)
