"""`RecordedHost`: what a recording answers where a screen asks its engine."""

from __future__ import annotations

from engine.host import EngineInfo, InFlight
from engine.records import Iteration


class RecordedHost:
    """An `EngineHost` whose engine is long gone."""

    in_flight: InFlight | None = None
    alive = False

    def __init__(self, info: EngineInfo) -> None:
        self.info = info
        self.time = 0.0
        """Of the step shown, on the engine's clock."""

    def start(self) -> None:
        pass

    def post(self, command: object) -> None:
        pass

    def drain(self, limit: int | None = None) -> list[Iteration]:
        return []

    def now(self) -> float:
        return self.time

    def stop(self, timeout: float = 1.0) -> bool:
        return True
