"""Smallest (priority, arrival, id) first; the running request with the largest (priority, arrival) is the victim.

As in vLLM: a victim may have been scheduled already in the same iteration, ties go to the earliest in the running
list, and a preempted request gets no bonus for having run. A steady stream of urgent requests starves the others,
unless knob `aging` is set: then each `aging` seconds of waiting lift a request by one level. That is a fixed order:
priority - (now - arrival) / aging ranks as priority + arrival / aging does.
"""

from __future__ import annotations

from engine.policies.base import PolicyEnv
from engine.policies.ranked import Ranked
from engine.request import Request


class Priority(Ranked):
    name = "priority"
    patience = 0.0
    victim = "priority"
    exact = True

    def __init__(self, env: PolicyEnv) -> None:
        self._aging = 0.0
        super().__init__(env)
        self._aging = self.aging_seconds
        self.exact = not self._aging

    def key(self, request: Request) -> tuple[float, float, str]:
        arrival = request.arrival or 0.0
        level = request.priority + arrival / self._aging if self._aging else request.priority
        return level, arrival, request.id

    def begin(self) -> None:
        if self._aging != self.aging_seconds:
            self._aging = self.aging_seconds
            self.exact = not self._aging
            self.resort()
