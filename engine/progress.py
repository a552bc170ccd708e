"""`Progress`: notices when preempted requests keep each other from getting anywhere.

Two requests that tie under `priority` can evict each other for ever when prompts are admitted by their first chunk
(vLLM's rules allow it). Progress is a token, or a request computed further than ever before.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.request import Request

PATIENCE = 16


class Progress:
    def __init__(self) -> None:
        self.fruitless = 0
        """Preemptions since anybody got further."""

    def stuck(self, running: Sequence[Request], preempted: int, sampled: bool, alive: int) -> bool:
        """Add an iteration. True after more preemptions without progress than `alive` requests could need."""
        if sampled or any(request.num_computed > request.high_water for request in running):
            self.fruitless = 0
            return False
        self.fruitless += preempted
        return self.fruitless > PATIENCE + 2 * alive
