"""`Plan`: what the scheduler decided for one iteration. Plain integers and requests; executors make tensors of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.records import Kind, Limit, Phase, Preempted, PrefixStats, Reason, Scheduled, Unscheduled, Waiting
from engine.request import Request


@dataclass(slots=True)
class PlanItem:
    """One request's part of an iteration: compute `num_tokens` known tokens from `start` on."""

    request: Request
    num_tokens: int
    start: int
    kind: Kind
    new_blocks: Sequence[int]
    samples: bool
    """Its known tokens end here, so one new token is sampled."""


@dataclass(slots=True)
class Plan:
    """What one iteration will run, in order, and what was decided on the way."""

    items: list[PlanItem] = field(default_factory=list)
    preempted: list[Preempted] = field(default_factory=list)
    budget: int = 0
    budget_left: int = 0
    blocked: Waiting | None = None
    unscheduled: list[Unscheduled] = field(default_factory=list)
    prefix: PrefixStats = PrefixStats()
    free_blocks: int = 0

    def records(self) -> tuple[Scheduled, ...]:
        """The items as they go into the Iteration record. Call before the sampled tokens are appended."""
        return tuple([_record(item) for item in self.items])

    @property
    def limit(self) -> Limit:
        """What kept the iteration from doing more."""
        blocked = self.blocked.reason if self.blocked else None
        if self.preempted or blocked in (Reason.BLOCKS, Reason.WATERMARK, Reason.PREEMPTION):
            return Limit.KV_PRESSURE
        if blocked is Reason.SEQS:
            return Limit.SEQ_CAP
        if blocked is Reason.BUDGET or (self.budget_left == 0 and self.items and not self.items[-1].samples):
            return Limit.TOKEN_BUDGET
        if any(reason is Reason.BUDGET for _, reason in self.unscheduled):
            return Limit.TOKEN_BUDGET
        return Limit.UNDERLOADED


def _record(item: PlanItem) -> Scheduled:
    request, start = item.request, item.start
    recomputed = max(0, min(start + item.num_tokens, request.high_water) - start) if request.high_water else 0
    if recomputed:
        request.recomputed_tokens += recomputed
        phase = Phase.RECOMPUTE
    elif item.samples and item.num_tokens == 1 and len(request.token_ids) > request.num_prompt:
        phase = Phase.DECODE
    else:
        phase = Phase.PREFILL
    return Scheduled(request.id, item.num_tokens, item.kind, phase, start, recomputed, tuple(item.new_blocks))
