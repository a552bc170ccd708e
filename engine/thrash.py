"""`ThrashDetector`: notices when requests are preempted more than the work is worth, and says why.

Over the last WINDOW executed iterations it counts preemptions and what they cost: tokens computed again, and tokens
whose KV was copied out or back. A storm begins with MANY preemptions whose cost is at least SHARE of all computed
tokens, and ends when a window had at most FEW, or after QUIET iterations without any. Constant time an iteration.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from engine.records import Cause, Preempted

WINDOW = 64
MANY = 8
FEW = 2
QUIET = 16
SHARE = 0.2
COUNTED = (Cause.BLOCKS, Cause.DISPLACED)
"""What a person does on purpose (a smaller pool, a rebuild) is no storm."""
COPY_COST = 0.2
"""Of a token copied to the swap pool or back, against computing it: about a fifth for an 8B model on a GPU."""


class Pressure(NamedTuple):
    """What the scheduler knows about its running requests at the moment."""

    needed_blocks: int
    """Blocks of the running and preempted requests at their longest."""
    requests: int
    """How many those are."""
    usable_blocks: int
    in_prompt: int
    """How many of the requests have not read their prompt to its end."""
    policy: str


class ThrashDetector:
    def __init__(self) -> None:
        self._window: deque[tuple[int, int, int]] = deque()
        self._preempted = self._wasted = self._tokens = 0
        self._causes: Counter[Cause] = Counter()
        self._cause_window: deque[tuple[Cause, ...]] = deque()
        self._quiet = 0
        """Iterations since the last preemption."""
        self.cause = ""
        """Of the storm that rages; "" in good weather."""

    def count(self, preempted: Sequence[Preempted], tokens: int, wasted: int) -> bool:
        """Add an executed iteration: its preemptions, computed tokens, and tokens recomputed or copied.

        True when a storm has just begun: then call `name`.
        """
        causes = tuple([victim.cause for victim in preempted if victim.cause in COUNTED])
        self._window.append((len(causes), tokens, wasted))
        self._cause_window.append(causes)
        self._preempted += len(causes)
        self._tokens += tokens
        self._wasted += wasted
        if causes:
            self._causes.update(causes)
        if len(self._window) > WINDOW:
            gone, old_tokens, old_wasted = self._window.popleft()
            self._preempted -= gone
            self._tokens -= old_tokens
            self._wasted -= old_wasted
            if left := self._cause_window.popleft():
                self._causes.subtract(left)
        self._quiet = 0 if causes else self._quiet + 1
        if self.cause:
            if self._preempted <= FEW or self._quiet >= QUIET:
                self.cause = ""
            return False
        return self._preempted >= MANY and self._wasted >= SHARE * self._tokens

    def calm(self) -> None:
        """Nobody is here any more: a storm is over."""
        self.cause = ""

    def name(self, pressure: Pressure) -> str:
        """The storm's cause and what to do about it, in one line; `cause` keeps the first half while it lasts."""
        share = self._wasted / max(1, self._tokens)
        count = self._preempted
        worst = max(self._causes, key=lambda cause: self._causes[cause])
        mean = max(1.0, pressure.needed_blocks / max(1, pressure.requests))
        fit = max(1, int(pressure.usable_blocks / mean))
        if worst is Cause.DISPLACED:
            self.cause = f"policy {pressure.policy} displaces running requests"
            cure = "another policy, or more slots and blocks, would prevent this"
        elif 2 * pressure.in_prompt >= pressure.requests:
            self.cause = "prompts are admitted by their first chunk"
            cure = f"scheduler_reserve_full_isl, or max_num_seqs about {fit}, would prevent this"
        else:
            self.cause = (
                f"{pressure.requests} requests need up to {pressure.needed_blocks} KV blocks, "
                f"the pool has {pressure.usable_blocks}"
            )
            cure = f"max_num_seqs about {fit}, or more num_blocks, would prevent this"
        return (
            f"preemption storm: {count} preemptions in {len(self._window)} iterations, {share:.0%} of the work is done "
            f"twice or copied; {self.cause}; {cure}"
        )
