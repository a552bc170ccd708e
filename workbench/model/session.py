"""What loading hands to the screen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.host import EngineHost
from engine.request import Request
from workbench.model.playback import Recorded
from workbench.model.progress import Progress as RunProgress

if TYPE_CHECKING:
    from traces.recording import Recorder

Progress = Callable[[str, int, int], None]
"""Called by a loader with stage, done and total (0: not known)."""


@dataclass(frozen=True, slots=True)
class Session:
    """An engine ready to start, how to turn text into tokens, and what to run first."""

    host: EngineHost
    encode: Callable[[str], list[int]]
    """Prompt text to token ids, chat template applied."""
    workload_requests: tuple[Request, ...] = ()
    recording: Recorded | None = None
    """What is played instead of an engine."""
    progress: RunProgress | None = None
    """How far a replay has come; None: it is none."""
    recorder: Recorder | None = None
    """Is shown every record already."""
    source: str = ""
    """What was asked for as the model, and the seed: for the header of a recording begun later."""
    seed: int = 0
    virtual: bool = False
    """Its times are made of iterations and tokens, not measured."""


Load = Callable[[Progress], Session]
