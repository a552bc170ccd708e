"""Shortest job first: the request with the fewest predicted output tokens, with aging against starvation.

The classic rule for the smallest mean time to finish when all lengths are known and nothing is interrupted; knob
`prediction_noise` shows what is left of it when they are not. Omission: prompts do not count as work.
"""

from __future__ import annotations

from engine.policies.aged import Aged
from engine.policies.predict import predicted_output
from engine.request import Request


class Sjf(Aged):
    name = "sjf"
    patience = 0.0
    victim = "lowest"
    aging = 30.0

    def size(self, request: Request) -> float:
        return predicted_output(request, self.env.config)

    def level(self, request: Request) -> float:
        return self.size(request)
