"""From waiting to running: who is admitted in an iteration, with how many tokens, in which blocks.

The head of the queue is admitted while everything fits; whatever does not fit stops the pass, and the plan says why
(head-of-line blocking: nobody overtakes). Swapped-out requests come first, and while one of them is left nothing new
starts (vLLM V0). Under static batching only members of the batch are admitted.

Invariant: an admission never preempts; a failed one changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

from engine.plan import Draft
from engine.prefix import lookup, register
from engine.records import Kind, PrefixStats, Reason, Waiting
from engine.request import Request, RequestStatus

if TYPE_CHECKING:
    from engine.scheduler import Scheduler

LOOK = 64
"""Waiting requests looked through for one whose client has budget left."""


class Admission:
    """Part of a Scheduler, whose queues and pools it changes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def swap_in(self, draft: Draft) -> None:
        """Bring swapped-out requests back, in their order. Not in an iteration that swaps out."""
        scheduler, plan = self._scheduler, draft.plan
        if plan.copies_out:
            if scheduler.swapped:
                plan.blocked = Waiting(scheduler.swapped[0].id, Reason.PREEMPTION, "swapped out in this iteration")
            return
        while scheduler.swapped:
            plan.blocked = self._bring_back(scheduler.swapped[0], draft)
            if plan.blocked is not None:
                return
            scheduler.swapped.pop(0)

    def admit(self, draft: Draft) -> None:
        """Admit from the head of the queue while everything fits."""
        scheduler, plan = self._scheduler, draft.plan
        gone = {victim.id for victim in plan.preempted} if plan.preempted else ()
        while len(scheduler.waiting):
            request, plan.blocked = self._next(draft)
            if plan.blocked is None and request.id in gone:
                plan.blocked = Waiting(request.id, Reason.PREEMPTION, "it was preempted in this iteration")
            if plan.blocked is None:
                if request.status is RequestStatus.SWAPPED:
                    if plan.copies_out:
                        plan.blocked = Waiting(request.id, Reason.PREEMPTION, "swapped out in this iteration")
                        return
                    plan.blocked = self._bring_back(request, draft)
                else:
                    plan.blocked = self._start(request, draft)
            if plan.blocked is not None:
                return

    def admit_batch(self, draft: Draft) -> None:
        """Static batching: form a batch when the last one has ended, start its members, take back preempted ones."""
        scheduler, plan = self._scheduler, draft.plan
        batch, waiting = scheduler.batch, scheduler.waiting
        if not batch.alive and len(waiting):
            plan.padding = batch.form(self._fitting(draft))
            plan.slots = max(plan.slots, len(batch.members))
        for request in batch.to_admit():
            blocked = self._start(request, draft)
            if blocked is not None:
                plan.blocked = blocked
                if blocked.reason not in (Reason.BUDGET, Reason.CLIENT_BUDGET):
                    batch.leave_out_waiting()
                return
        if len(waiting):
            head, size = waiting.head(), len(batch.members)
            detail = f"the batch runs until its longest member ends: {batch.alive} of {size} slots still work"
            plan.blocked = Waiting(head.id, Reason.STATIC_BATCH, detail)

    def _fitting(self, draft: Draft) -> list[Request]:
        """The first waiting requests whose prompts fit the free blocks together, at most one a slot.

        At least the head: whatever keeps it back is told when it is tried.
        """
        scheduler = self._scheduler
        free, members = scheduler.pool.num_free, list[Request]()
        for request in islice(scheduler.waiting, scheduler.slots):
            free -= -(-request.num_tokens // scheduler.config.block_size)
            if (free < 0 or scheduler.policy.keeps_back(request)) and members:
                break
            members.append(request)
        return members

    def room_for(self, request: Request, without: Sequence[Request] = ()) -> bool:
        """Whether slots and blocks would let a request in, once the running ones in `without` were gone."""
        scheduler = self._scheduler
        pool = scheduler.pool
        if len(scheduler.running) - len(without) >= scheduler.slots:
            return False
        freed = sum(pool.ref[block] == 1 for one in without for block in one.block_table)
        if request.status is RequestStatus.SWAPPED:
            return -(-request.num_tokens // scheduler.config.block_size) <= pool.num_free + freed
        hits = lookup(pool, request, scheduler.config.block_size, request.num_tokens - 1)
        return self._shortage(request, hits, request.num_tokens, freed) is None

    def _next(self, draft: Draft) -> tuple[Request, Waiting | None]:
        """Whose turn it is, and why he may not start."""
        policy = self._scheduler.policy
        request = policy.head()
        if draft.quota:
            some = islice(policy, LOOK)
            found = next((one for one in some if draft.quota_left(one.client) > 0), None)
            if found is None:
                detail = f"client {request.client} has had its {draft.quota} tokens of this iteration"
                return request, Waiting(request.id, Reason.CLIENT_BUDGET, detail)
            request = found
        why = policy.keeps_back(request)
        return request, None if why is None else Waiting(request.id, Reason.POLICY, why)

    def _start(self, request: Request, draft: Draft) -> Waiting | None:
        """Admit one waiting request, or say what it lacks."""
        scheduler, config, pool = self._scheduler, self._scheduler.config, self._scheduler.pool
        block_size, budget = config.block_size, draft.budget
        stopped = self._no_turn(request, draft)
        if stopped is not None:
            return stopped
        known = len(request.token_ids)
        hits = lookup(pool, request, block_size, known - 1)
        start = len(hits) * block_size
        if draft.hold and start < known - 1:
            every = config.prefill_schedule_interval
            return Waiting(request.id, Reason.HELD, f"prompts run every {every} iterations")
        count = known - start
        if 0 < draft.threshold < count:
            count = draft.threshold
        quota = draft.quota_left(request.client) if draft.quota else 0
        if config.enable_chunked_prefill:
            count = min(count, budget)
            if draft.quota:
                count = min(count, quota)
        elif count > budget:
            # A prompt above the whole budget (possible only after a live change) runs in one piece as the only
            # prompt of its iteration; it would wait for ever otherwise.
            if count <= config.max_num_batched_tokens or draft.prefilling:
                detail = f"{count} tokens in one piece, {budget} of {draft.plan.budget} left"
                return Waiting(request.id, Reason.BUDGET, detail)
        elif draft.quota and count > quota and request.client in draft.spent:
            detail = f"{count} tokens in one piece, client {request.client} has {quota} of {draft.quota} left"
            return Waiting(request.id, Reason.CLIENT_BUDGET, detail)
        shortage = self._shortage(request, hits, start + count)
        if shortage is not None:
            return shortage

        scheduler.waiting.take(request)
        self._place(request, hits, start, start + count)
        kind = Kind.RESUMED if request.num_preemptions else Kind.NEW
        if kind is Kind.NEW:
            request.cached_tokens = start
        if pool.caching:
            ordinary = PrefixStats(known, start) if kind is Kind.NEW else PrefixStats(0, 0, known, start)
            draft.plan.prefix = PrefixStats(*map(sum, zip(draft.plan.prefix, ordinary, strict=True)))
        draft.give(request, count, start, kind, request.block_table)
        draft.prefilling |= start < known - 1
        return None

    def _bring_back(self, request: Request, draft: Draft) -> Waiting | None:
        """Take a swapped-out request back into the pool, or say what it lacks. Blocks still cached are not copied."""
        scheduler, config, pool = self._scheduler, self._scheduler.config, self._scheduler.pool
        stopped = self._no_turn(request, draft)
        if stopped is not None:
            return stopped
        start, known = request.num_computed, len(request.token_ids)
        if draft.hold and request.mid_prompt:
            return Waiting(request.id, Reason.HELD, f"prompts run every {config.prefill_schedule_interval} iterations")
        count = min(known - start, draft.threshold or known, draft.budget)
        if draft.quota:
            count = min(count, draft.quota_left(request.client))
            if count <= 0:
                return Waiting(request.id, Reason.CLIENT_BUDGET, f"client {request.client} has had its tokens")
        hits = lookup(pool, request, config.block_size, start)
        shortage = self._shortage(request, hits, start + count)
        if shortage is not None:
            return shortage
        if scheduler.displacing:
            scheduler.waiting.take(request)
        self._place(request, hits, start, start + count)
        held = range(len(hits), len(request.cpu_blocks))
        draft.plan.copies_in += [(request.cpu_blocks[i], request.block_table[i]) for i in held]
        scheduler.swap_pool.give_back(request.cpu_blocks)
        request.cpu_blocks = []
        draft.give(request, count, start, Kind.SWAPPED_IN, request.block_table)
        draft.prefilling |= request.mid_prompt
        return None

    def _no_turn(self, request: Request, draft: Draft) -> Waiting | None:
        """Budget and slots."""
        scheduler = self._scheduler
        if draft.budget <= 0:
            return Waiting(request.id, Reason.BUDGET, f"the budget of {draft.plan.budget} tokens is used up")
        if len(scheduler.running) >= scheduler.slots:
            detail = f"{len(scheduler.running)} of {scheduler.slots} slots taken"
            return Waiting(request.id, Reason.SEQS, detail)
        return None

    def _place(self, request: Request, hits: list[int], start: int, upto: int) -> None:
        """Give a request its slot and its blocks."""
        scheduler, pool, block_size = self._scheduler, self._scheduler.pool, self._scheduler.config.block_size
        pool.share(hits, request.id)
        need = max(0, -(-upto // block_size) - len(hits))
        request.block_table = [*hits, *pool.take(need, request.id)]
        request.num_computed, request.num_registered = start, len(hits)
        if pool.caching:
            register(pool, request, block_size, upto)
        request.status = RequestStatus.RUNNING
        scheduler.running.append(request)

    def _shortage(self, request: Request, hits: Sequence[int], upto: int, freed: int = 0) -> Waiting | None:
        """Why the blocks for `upto` tokens, the first of them in `hits`, cannot be had; None when they can.

        freed: blocks to be had on top of the free ones.
        """
        scheduler = self._scheduler
        config, pool = scheduler.config, scheduler.pool
        if config.scheduler_reserve_full_isl:
            upto = max(upto, min(len(request.token_ids), config.model_len))
        revived = sum(pool.ref[block] == 0 for block in hits)
        blocks, promised = -(-upto // config.block_size), 0
        if config.reserve_output:
            blocks = max(blocks, self.most_blocks(request))
            promised = sum(self.most_blocks(one) - len(one.block_table) for one in scheduler.running)
        need = max(0, blocks - len(hits)) + revived
        reserve = int(config.watermark * config.num_blocks) if scheduler.running else 0
        free = pool.num_free + freed
        if need + promised + reserve <= free:
            return None
        if need + promised <= free:
            detail = f"needs {need} blocks, {pool.num_free} free, {reserve} kept by the watermark"
            return Waiting(request.id, Reason.WATERMARK, detail)
        kept = f", {promised} promised to running ones" if promised else ""
        return Waiting(request.id, Reason.BLOCKS, f"needs {need} blocks, {pool.num_free} free{kept}")

    def most_blocks(self, request: Request) -> int:
        """Blocks of a request at its longest; the last token is sampled but never computed."""
        scheduler = self._scheduler
        tokens = request.num_prompt + scheduler.most_output(request) - 1
        most = min(-(-tokens // scheduler.config.block_size), scheduler.pool.num_usable)
        return max(most, len(request.block_table))
