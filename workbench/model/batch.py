"""The static batch, as the state after an iteration tells it."""

from __future__ import annotations

from engine.request import RequestStatus
from engine.view import EngineView


def working(view: EngineView) -> int:
    """Members that have not ended. 0: there is no batch, or the last one is over."""
    requests = view.requests
    return sum(id in requests and requests[id].status is not RequestStatus.FINISHED for id in view.batch)


def held(view: EngineView) -> list[str]:
    """Members that have ended while others work: their slots stay taken."""
    if not view.batch or not working(view):
        return []
    requests = view.requests
    return [id for id in view.batch if id in requests and requests[id].status is RequestStatus.FINISHED]


def slots_text(view: EngineView) -> str:
    """How many slots work; "" when batching is continuous or no batch runs."""
    alive = working(view)
    return f"{alive}/{len(view.batch)}" if alive else ""
