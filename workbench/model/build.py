"""What an engine was built of, and what building another one means, in words."""

from __future__ import annotations

from typing import NamedTuple

from engine.knobs import KnobValue
from engine.view import EngineView
from workbench.model.events import show


class Build(NamedTuple):
    step: int
    """First step it ran."""
    model: str
    dtype: str


def building_text(changes: dict[str, tuple[KnobValue, KnobValue]], view: EngineView) -> str:
    """What a person agrees to: old and new values, and what becomes of the requests."""
    what = ", ".join(f"{name} {show(old)}→{show(new)}" for name, (old, new) in changes.items())
    busy = len(view.running) + len(view.swapped)
    requests = "1 running request" if busy == 1 else f"{busy} running requests"
    if not busy:
        then = "nothing runs, the queue is kept"
    elif "model" in changes:
        then = f"{requests} cannot go on with another model: answers that began end; the queue is kept"
    else:
        then = f"{requests} {'is' if busy == 1 else 'are'} computed again, the queue is kept"
    return f"{what} builds the engine anew: {then}."
