"""The static batch, as the state after an iteration tells it."""

from __future__ import annotations

from engine.request import RequestStatus
from engine.view import EngineView

_IDLE = (
    (RequestStatus.SWAPPED, "swapped out"),
    (RequestStatus.PREEMPTED, "preempted"),
    (RequestStatus.WAITING, "waiting"),
    (RequestStatus.FINISHED, "ended"),
)


def _states(view: EngineView) -> list[RequestStatus]:
    """Of the members by slot; those no longer remembered have ended."""
    requests = view.requests
    return [requests[id].status if id in requests else RequestStatus.FINISHED for id in view.batch]


def alive(view: EngineView) -> int:
    """Members that have not ended. 0: there is no batch, or the last one is over."""
    return sum(state is not RequestStatus.FINISHED for state in _states(view))


def held(view: EngineView) -> list[str]:
    """Members that have ended while others have not: their slots stay taken."""
    if not view.batch or not alive(view):
        return []
    requests = view.requests
    return [id for id in view.batch if id in requests and requests[id].status is RequestStatus.FINISHED]


def slots_text(view: EngineView) -> str:
    """How many slots work: only running members do. "" when batching is continuous or no batch runs."""
    states = _states(view)
    if all(state is RequestStatus.FINISHED for state in states):
        return ""
    return f"{states.count(RequestStatus.RUNNING)}/{len(states)}"


def slots_line(view: EngineView) -> str:
    """The same with what the others do, as a sentence; "" likewise."""
    slots = slots_text(view)
    states = _states(view)
    others = ", ".join(f"{states.count(state)} {word}" for state, word in _IDLE if state in states)
    return f"batch {slots} slots work" + (f": {others}" if others else "") if slots else ""
