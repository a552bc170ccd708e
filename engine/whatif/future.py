"""`Future`: what became, or would become, of a run from one iteration on.

The same `Iteration` records as a live engine publishes, numbered on from the last one before the fork, so that a copy
of the recording's view at that point takes them in as they are. A run that is planned anew from its start (knobs that
only a new engine can have) begins with record 0, for an empty view of `config`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.config import EngineConfig
from engine.knobs import KnobValue
from engine.records import Iteration
from engine.whatif.costs import FittedCosts


class Before(NamedTuple):
    """A request that was there already at the fork. Times are seconds on the engine's clock."""

    id: str
    client: str
    arrival: float
    prompt_len: int
    output_len: int
    first_token: float | None
    last_token: float | None
    preemptions: int
    recomputed_tokens: int


@dataclass(frozen=True, slots=True)
class Future:
    at_step: int
    """Iterations that are the recording's."""
    changes: Mapping[str, KnobValue]
    """Knobs that are other than in the recording."""
    config: EngineConfig
    """At the fork, changes included."""
    start: float
    """Time of the fork."""
    before: tuple[Before, ...]
    records: tuple[Iteration, ...]
    complete: bool
    """Everything ended; False when it was cut at the horizon or got stuck."""
    assumed: frozenset[str] = frozenset()
    """Requests with tokens or an end that the recording does not tell."""
    costs: FittedCosts | None = None
    """What times are made of; None: measured."""
    notes: tuple[str, ...] = ()
    """What a person should know before believing it, one line each."""
