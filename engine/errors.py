"""Errors a person can mend: one clear line that says what, where and what to do.

Invariant: raising one of these has changed nothing. Anything else that is raised in the
engine is a fault of ours and keeps its traceback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.records import Iteration


class WorkbenchError(Exception):
    """A user's mistake or a missing thing; `str(error)` is the whole message, one line."""


class ConfigError(WorkbenchError):
    """A knob has a value it cannot have. `knob` names it."""

    def __init__(self, knob: str, message: str) -> None:
        super().__init__(f"{knob}: {message}")
        self.knob = knob


class RequestError(WorkbenchError):
    """A request that can never run; refused at the door."""


class PolicyFault(Exception):
    """A policy from outside raised while it was asked; the message names it and the place in its file."""


class ModelError(WorkbenchError):
    """A model, checkpoint or tokenizer that cannot be used."""


class ForkError(WorkbenchError):
    """A recording from which this future cannot be made."""


class DivergedError(ForkError):
    """Repeating a recording, the scheduler decided otherwise. `record` is what it made instead (None: nothing)."""

    def __init__(self, message: str, seq: int, record: Iteration | None) -> None:
        super().__init__(message)
        self.seq = seq
        self.record = record
