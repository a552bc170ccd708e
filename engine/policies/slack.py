"""Least slack first: deadline less now less the time its prompt will take, so that long prompts start sooner.

"Now" is the same for all and drops out, so the order only changes when a token of prefill is measured to take another
time. Sorting anew waits until that has moved by a quarter; in between new requests are judged by the old measure.
Omission: what the prefix cache holds is looked up once, when a request begins to wait. Nobody is turned away.
"""

from __future__ import annotations

from engine.policies.base import PolicyEnv
from engine.policies.edf import due
from engine.policies.ranked import Ranked
from engine.request import Request

TOLERANCE = 0.25


class Slack(Ranked):
    name = "slack"
    victim = "lowest"

    def __init__(self, env: PolicyEnv) -> None:
        super().__init__(env)
        self._token_seconds = env.token_seconds
        self._uncached: dict[str, int] = {}

    def key(self, request: Request) -> tuple[float, float, str]:
        start_by = due(request) - self._uncached[request.id] * self._token_seconds
        return start_by, request.arrival or 0.0, request.id

    def level(self, request: Request) -> float:
        return due(request)

    def begin(self) -> None:
        if abs(self.env.token_seconds - self._token_seconds) > TOLERANCE * self._token_seconds:
            self._token_seconds = self.env.token_seconds
            self.resort()

    def add(self, request: Request) -> None:
        self._uncached[request.id] = max(0, request.num_tokens - self.env.cached_tokens(request))
        super().add(request)

    def readd(self, request: Request) -> None:
        self.add(request)

    def take(self, request: Request) -> None:
        super().take(request)
        del self._uncached[request.id]

    def remove(self, request: Request) -> None:
        self.take(request)
