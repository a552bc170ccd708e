"""Shortest remaining processing time: the fewest predicted output tokens still to come; a short one displaces a long.

Source: Schrage's rule for one server, with the cost of switching. A running request gives way only if it has more to go
than the head by more iterations than its preemption costs: its computed tokens again, or one iteration to swap.

Invariant: never back and forth. Who was displaced has more to go than who took its place, and the difference only
grows while that one runs. Aging cannot turn this round: it chooses the head, but lengths decide who gives way.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.policies.sjf import Sjf
from engine.policies.victims import lowest
from engine.request import Request


class Srpt(Sjf):
    name = "srpt"
    preemptive = True

    def size(self, request: Request) -> float:
        return max(1.0, super().size(request) - request.num_output)

    def displaced(self, running: Sequence[Request]) -> int | None:
        head = self.head()
        rank = self.rank(head)
        # Who would come before the head once it waits would only take the place back.
        behind = [request for request in running if self.rank(request) > rank]
        if not behind:
            return None
        longest = behind[lowest(behind, self)]
        gain = self.size(longest) - self.size(head)
        return running.index(longest) if gain > self._cost(longest) else None

    def _cost(self, request: Request) -> int:
        """Iterations lost by preempting a running request."""
        if self.env.config.preemption_mode == "swap":
            return 1
        return -(-request.num_computed // self.env.config.max_num_batched_tokens)
