"""Earliest deadline first: who should have its first token soonest. Requests without a deadline come last, by arrival.

Best when everybody's deadline can be met (Liu and Layland, 1973); when not, it serves those that are late anyway first.
Omission: nobody is turned away for being late.
"""

from __future__ import annotations

import math

from engine.policies.ranked import Ranked
from engine.request import Request


class Edf(Ranked):
    name = "edf"
    victim = "lowest"

    def key(self, request: Request) -> tuple[float, float, str]:
        return due(request), request.arrival or 0.0, request.id

    def level(self, request: Request) -> float:
        return due(request)


def due(request: Request) -> float:
    """When the first token should be there, on the engine's clock."""
    return math.inf if request.deadline is None else (request.arrival or 0.0) + request.deadline
