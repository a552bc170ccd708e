"""`RequestRow`: how one request went. definitions.py says what its times mean; here they are computed, and only here.

All times are seconds on the engine's clock. A token's time is the end of the iteration that sampled it; a request is
scheduled, or preempted, at the start of the iteration that does it.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import Any

from engine.request import FinishReason
from traces.stats import gaps, micro, minus


@dataclass(slots=True)
class RequestRow:
    """How one request went. Times are None until they happened."""

    id: str
    client: str
    prompt_len: int | None
    """None for a request that was refused before its prompt was seen."""
    arrival: float | None = None
    """Planned, on the engine's clock. Closed loop: the end of `after` plus the delay."""
    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    """length | stop | abort | error | rejected."""
    detail: str = ""
    """Which stop string, which error, why refused."""
    cached_tokens: int = 0
    preemptions: int = 0
    swapped_out: int = 0
    """How many of the preemptions kept its KV in the swap pool."""
    swapped_blocks: int = 0
    """Blocks copied out, all times together."""
    recomputed_tokens: int = 0
    deadline_s: float | None = None
    """Seconds after arrival by which the first token should be there."""
    first_scheduled: float | None = None
    times: array[float] = field(default_factory=lambda: array("d"))
    """When each token was sampled."""
    priority: int = 0
    session: str | None = None
    after: str | None = None
    """The request whose end it waited for (closed loop)."""
    taken: float | None = None
    """Start of the step that took it into the queue."""
    requeue_s: float = 0.0
    """Seconds in the queue after preemptions, those that are over."""
    preempted_at: float | None = None
    """Since when it waits again; None while it does not."""
    slo_met: bool | None = None
    """None until it has ended, and without an SLO."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def lag_s(self) -> float | None:
        lag = minus(self.taken, self.arrival)
        return None if lag is None else max(0.0, lag)  # ended by hand before its time: it was not late

    @property
    def queue_s(self) -> float | None:
        return minus(self.first_scheduled, self.arrival)

    @property
    def ttft_s(self) -> float | None:
        return minus(self.times[0], self.arrival) if self.times else None

    @property
    def ttft_admit_s(self) -> float | None:
        return minus(self.times[0], self.first_scheduled) if self.times else None

    @property
    def e2e_s(self) -> float | None:
        return minus(self.times[-1], self.arrival) if self.times else None

    @property
    def norm_s(self) -> float | None:
        e2e = self.e2e_s
        return None if e2e is None else e2e / len(self.times)

    @property
    def tpot_s(self) -> float | None:
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1) if len(self.times) > 1 else None

    @property
    def itl_max_s(self) -> float | None:
        return float(gaps(self.times).max()) if len(self.times) > 1 else None

    @property
    def deadline_met(self) -> bool | None:
        """None without a deadline. A request that ended without a first token has missed it."""
        if self.deadline_s is None:
            return None
        return self.ttft_s is not None and self.ttft_s <= self.deadline_s

    def preempt(self, now: float) -> None:
        self.preemptions += 1
        if self.preempted_at is None:
            self.preempted_at = now

    def resume(self, now: float) -> None:
        """It runs again, or has ended: its wait is over."""
        if self.preempted_at is not None:
            self.requeue_s += now - self.preempted_at
            self.preempted_at = None

    def as_dict(self) -> dict[str, Any]:
        """The line `--out` writes."""
        return {
            "id": self.id,
            "client": self.client,
            "priority": self.priority,
            "session": self.session,
            "after": self.after,
            "prompt_len": self.prompt_len,
            "output_len": len(self.times),
            "token_ids": self.token_ids,
            "text": self.text,
            "finish_reason": self.finish_reason,
            "error": self.detail if self.finish_reason in ("rejected", FinishReason.ERROR) else None,
            "cached_tokens": self.cached_tokens,
            "preemptions": self.preemptions,
            "swapped_out": self.swapped_out,
            "swapped_blocks": self.swapped_blocks,
            "recomputed_tokens": self.recomputed_tokens,
            "deadline_s": self.deadline_s,
            "deadline_met": self.deadline_met,
            "slo_met": self.slo_met,
            "lag_s": micro(self.lag_s),
            "queue_s": micro(self.queue_s),
            "ttft_s": micro(self.ttft_s),
            "ttft_admit_s": micro(self.ttft_admit_s),
            "requeue_s": None if self.first_scheduled is None else micro(self.requeue_s),
            "tpot_s": micro(self.tpot_s),
            "itl_max_s": micro(self.itl_max_s),
            "e2e_s": micro(self.e2e_s),
            "norm_s": micro(self.norm_s),
        }
