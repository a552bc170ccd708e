"""`Plan`: what the scheduler decided for one iteration. Plain integers and requests; executors make tensors of it."""

from __future__ import annotations

from collections.abc import Sequence
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
    """What one iteration will run, in order, and what was decided on the way.

    Who runs, what each of them gets and who samples are three lists: columns cost an iteration less than rows.
    """

    requests: list[Request] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    scheduled: list[Scheduled] = field(default_factory=list)
    """As they go into the record."""
    samples: list[bool] = field(default_factory=list)
    """Its known tokens end here, so one new token is sampled."""
    num_tokens: int = 0
    recomputed: int = 0
    """How many of them had been computed before a preemption."""
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
        return bool(self.requests or self.preempted or self.ended)

    @property
    def items(self) -> list[PlanItem]:
        """Made anew each time, for whoever has the time."""
        return [
            PlanItem(request, item.num_tokens, item.computed_before, item.kind, item.new_blocks, samples)
            for request, item, samples in zip(self.requests, self.scheduled, self.samples, strict=True)
        ]

    @property
    def limit(self) -> Limit:
        """What kept the iteration from doing more."""
        blocked = self.blocked.reason if self.blocked else None
        pressed = any(victim.cause is not Cause.DISPLACED for victim in self.preempted)
        if pressed or blocked in (Reason.BLOCKS, Reason.WATERMARK, Reason.PREEMPTION, Reason.SWAPPED):
            return Limit.KV_PRESSURE
        if blocked is Reason.SEQS:
            return Limit.SEQ_CAP
        if blocked is Reason.STATIC_BATCH:
            return Limit.STATIC_BATCH
        if blocked is Reason.BUDGET or (self.budget_left == 0 and self.samples and not self.samples[-1]):
            return Limit.TOKEN_BUDGET
        if any(reason is Reason.BUDGET for _, reason in self.unscheduled):
            return Limit.TOKEN_BUDGET
        if blocked in (Reason.POLICY, Reason.CLIENT_BUDGET, Reason.HELD):
            return Limit.HELD_BACK
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
    spent: dict[str, int] = field(default_factory=dict)
    """Tokens by client, while there is a quota."""
    prefilling: bool = False
    """Some request reads its prompt."""
    given: dict[str, tuple[Request, Scheduled]] = field(default_factory=dict)
    """Whose state is to be brought up to date once nobody can be preempted any more."""

    def give(self, request: Request, count: int, start: int, kind: Kind, new_blocks: Sequence[int]) -> None:
        """Have a request compute `count` tokens from `start` on."""
        recomputed = max(0, min(start + count, request.high_water) - start)
        known = len(request.token_ids)
        if recomputed:
            phase = Phase.RECOMPUTE
        else:
            phase = Phase.DECODE if count == 1 and start + 1 == known > request.num_prompt else Phase.PREFILL
        item = Scheduled(request.id, count, kind, phase, start, recomputed, tuple(new_blocks))
        self.plan.requests.append(request)
        self.plan.ids.append(request.id)
        self.plan.scheduled.append(item)
        self.plan.samples.append(start + count == known)
        self.given[request.id] = request, item
        self.spend(request, count)

    def take_back(self, request: Request) -> bool:
        """Undo `give`; False when it was given nothing."""
        if self.given.pop(request.id, None) is None:
            return False
        at = self.plan.requests.index(request)
        del self.plan.requests[at], self.plan.ids[at], self.plan.samples[at]
        self.spend(request, -self.plan.scheduled.pop(at).num_tokens)
        return True

    def settle(self) -> None:
        """The plan is final: bring the requests up to date."""
        recomputed = 0
        for request, item in self.given.values():
            request.num_computed = upto = item.computed_before + item.num_tokens
            request.mid_prompt = upto != len(request.token_ids)
            request.recomputed_tokens += item.recomputed
            recomputed += item.recomputed
        self.plan.recomputed = recomputed
        self.plan.num_tokens = self.plan.budget - self.budget
        self.plan.budget_left = max(self.budget, 0)

    def quota_left(self, client: str) -> int:
        return self.quota - self.spent.get(client, 0)

    def spend(self, request: Request, tokens: int) -> None:
        """Take tokens off the budget; negative ones go back."""
        self.budget -= tokens
        if self.quota:
            self.spent[request.client] = self.spent.get(request.client, 0) + tokens
