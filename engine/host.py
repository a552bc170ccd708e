"""`EngineHost`: how a screen, a server or a headless run holds an engine it does not touch.

`EngineThread` is the real one; tests script another, and a recording can be played through a third.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from engine.commands import Command
from engine.config import EngineConfig
from engine.records import Iteration

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.rebuild import Reencode


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What does not change while an engine lives, unless it is built anew."""

    model: str
    device: str
    dtype: str
    threads: int
    config: EngineConfig
    """As resolved at start; live knobs may differ later (see the records)."""
    vocab_size: int
    kv_bytes: int
    """Size of the KV pool."""
    parameters: int
    notes: tuple[str, ...] = ()


class Fresh(NamedTuple):
    """An engine built to replace another one."""

    engine: Engine
    info: EngineInfo
    reencode: Reencode | None
    """Given when the model is another one; see `engine.rebuild`."""


Rebuilder = Callable[[dict[str, Any]], Fresh]
"""Builds an engine with these changes against the start; WorkbenchError when it cannot be."""


class InFlight(NamedTuple):
    """The iteration that is running now. Its record comes when it has ended; this is for people who wait."""

    step: int
    since: float
    """Engine-clock seconds."""
    requests: tuple[str, ...]
    num_tokens: int
    num_waiting: int


class Observer(Protocol):
    """Is shown every record in the engine's own thread, right after it was made: it must be quick.

    If it raises it is dropped, and a notice tells why.
    """

    def add(self, it: Iteration) -> None: ...

    def close(self) -> None:
        """No record comes any more: the engine has ended, or another observer takes over. Same thread as `add`."""
        ...


class EngineHost(Protocol):
    @property
    def info(self) -> EngineInfo: ...

    @property
    def alive(self) -> bool:
        """False before start, after stop, and after a fault (whose record is then the last)."""
        ...

    @property
    def in_flight(self) -> InFlight | None:
        """What is being computed at this moment, None between iterations."""
        ...

    def start(self) -> None: ...

    def post(self, command: Command) -> None:
        """Ask for something; never blocks. It is applied between iterations."""
        ...

    def drain(self, limit: int | None = None) -> list[Iteration]:
        """Records since the last call, oldest first, none lost; never blocks. One reader only."""
        ...

    def observe(self, observer: Observer | None) -> None:
        """Show every record after those that `drain` has given out so far to an observer, in the engine's thread.

        It takes the place of the one before, which is closed; None: nobody looks any more. Call it from the thread that
        drains: a state folded from everything drained is then exactly the state before the observer's first record.
        An engine that has ended shows nobody anything.
        """
        ...

    def now(self) -> float:
        """The engine's clock, seconds: the scale of every time in the records."""
        ...

    def stop(self, timeout: float = 1.0) -> bool:
        """End the engine; True when it has ended within `timeout` seconds. Safe to call twice."""
        ...
