"""`Plan`: what the scheduler decided for one iteration. Plain integers and requests; executors make tensors of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from engine.records import Cause, Kind, Limit, Phase, Preempted, PrefixStats, Reason, Scheduled, Unscheduled, Waiting
from engine.request import Request


class PlanItem(NamedTuple):
    """One request's part of an iteration: compute `num_tokens` known tokens from `start` on."""

    request: Request
    num_tokens: int
    start: int
    kind: Kind
    new_blocks: tuple[int, ...]
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
    ended: list[tuple[Request, str]] = field(default_factory=list)
    """Requests that outgrew a pool made smaller, each with the reason."""
    copies_out: list[tuple[int, int]] = field(default_factory=list)
    """(pool block, swap block): to be copied first, before anything is written."""
    copies_in: list[tuple[int, int]] = field(default_factory=list)
    """(swap block, pool block)."""
    slots: int = 0
    """Batch slots of this iteration."""
    padding: int = 0
    """Prompt tokens that padding would add to a static batch formed now."""

    @property
    def eventful(self) -> bool:
        """Something happened, even if nothing runs."""
        return bool(self.items or self.preempted or self.ended)

    def records(self) -> tuple[Scheduled, ...]:
        """The items as they go into the Iteration record. Call before the sampled tokens are appended."""
        new, decode = tuple.__new__, Phase.DECODE  # half the time of Scheduled(...), which is a Python function
        return tuple(
            [
                new(Scheduled, (request.id, 1, kind, decode, start, 0, blocks))
                if count == 1 and samples and start >= request.num_prompt and start >= request.high_water
                else _record(PlanItem(request, count, start, kind, blocks, samples))
                for request, count, start, kind, blocks, samples in self.items
            ]
        )

    @property
    def limit(self) -> Limit:
        """What kept the iteration from doing more."""
        blocked = self.blocked.reason if self.blocked else None
        pressed = any(victim.cause is not Cause.DISPLACED for victim in self.preempted)
        if pressed or blocked in (Reason.BLOCKS, Reason.WATERMARK, Reason.PREEMPTION, Reason.SWAPPED):
            return Limit.KV_PRESSURE
        if blocked is Reason.SEQS:
            return Limit.SEQ_CAP
        if blocked is Reason.BUDGET or (self.budget_left == 0 and self.items and not self.items[-1].samples):
            return Limit.TOKEN_BUDGET
        if any(reason is Reason.BUDGET for _, reason in self.unscheduled):
            return Limit.TOKEN_BUDGET
        return Limit.UNDERLOADED


@dataclass(slots=True)
class Draft:
    """An iteration while it is being planned."""

    plan: Plan
    budget: int
    """Tokens left."""
    threshold: int
    """Most tokens of one request, 0: no limit."""
    hold: bool
    """Prompts are held back (prefill_schedule_interval)."""
    quota: int
    """Most tokens of one client, 0: no limit."""
    items: list[PlanItem] = field(default_factory=list)
    spent: dict[str, int] = field(default_factory=dict)
    """Tokens by client, while there is a quota."""
    prefilling: bool = False
    """Some request reads its prompt."""

    def drop(self, request: Request) -> PlanItem | None:
        """Take back what a request was given; None when it was given nothing."""
        item = next((item for item in self.items if item.request is request), None)
        if item is not None:
            self.items.remove(item)
            self.spend(request, -item.num_tokens)
        return item

    def quota_left(self, client: str) -> int:
        return self.quota - self.spent.get(client, 0)

    def spend(self, request: Request, tokens: int) -> None:
        """Take tokens off the budget; negative ones go back."""
        self.budget -= tokens
        if self.quota:
            self.spent[request.client] = self.spent.get(request.client, 0) + tokens


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
    return Scheduled(request.id, item.num_tokens, item.kind, phase, start, recomputed, item.new_blocks)
