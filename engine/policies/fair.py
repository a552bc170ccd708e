"""Virtual Token Counter: equal service for clients that ask for it, whatever they send.

Source: Sheng et al., "Fairness in Serving Large Language Models" (OSDI 2024). Every client has a counter of its
service over its weight, and the head is the oldest request of the client with the smallest one (ties by name). A
client that had nothing waiting is lifted to the smallest counter of those who wait, so nobody saves up service by
being idle; with nobody waiting, to that of the client that left the queue last. A preempted request that comes back
is such an arrival too: its client had no backlog while it ran.

Invariant: two clients that both have requests waiting all the time differ by at most twice the larger of a longest
prompt and OUTPUT_TOKEN times the tokens of a full pool. Work conserving: the head is served whoever's it is.
Omission: output lengths are not predicted, so a client is charged after the fact.
"""

from __future__ import annotations

from engine.policies.base import PolicyEnv
from engine.policies.lcf import Lcf


class Fair(Lcf):
    name = "fair"
    patience = 0.0

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._left_last: str | None = None

    def joins(self, client: str) -> None:
        first = self.first
        if first is not None:
            floor = first[0]
        elif self._left_last is not None:
            floor = self.service(self._left_last)
        else:
            return
        self.put_down(client, max(self.service(client), floor))

    def leaves(self, client: str) -> None:
        self._left_last = client
