"""What other threads may ask of the engine. Applied between iterations only, in the order posted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from engine.request import Request

if TYPE_CHECKING:
    from engine.host import Observer
    from engine.records import Iteration


class Submit(NamedTuple):
    """Plan or start requests. One with `arrival` in the future waits, unseen, until then; None arrives now."""

    requests: tuple[Request, ...]


class Abort(NamedTuple):
    """End a request wherever it is. Unknown or finished ids are ignored."""

    id: str


class SetKnob(NamedTuple):
    """Change a live knob. A refused change is answered by `Iteration.notices`, and nothing changes."""

    name: str
    value: Any


class Rebuild(NamedTuple):
    """Build the engine anew with other values of knobs that are not live, or another `model` or `dtype`.

    The queue is kept, running requests are computed again. Refused as `SetKnob` is.
    """

    changes: dict[str, Any]


class Pause(NamedTuple):
    """Stop at the next iteration boundary. Arrivals keep their schedule."""


class Resume(NamedTuple):
    pass


class RunSteps(NamedTuple):
    """Pause after `steps` more iterations that ran the model."""

    steps: int


class SetPace(NamedTuple):
    """At most `per_second` iterations a second; None lifts the limit."""

    per_second: float | None


class Stop(NamedTuple):
    """End the engine thread after the iteration that is running."""


class Observe(NamedTuple):
    """Change who is shown every record as it is made; posted by `EngineHost.observe`."""

    observer: Observer | None
    drained: list[Iteration]
    """Records that were drained since then."""


Command = Submit | Abort | SetKnob | Rebuild | Pause | Resume | RunSteps | SetPace | Observe | Stop
