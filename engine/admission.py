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


class Admission:
    """Part of a Scheduler, whose queues and pools it changes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def swap_in(self, draft: Draft) -> None:
        """Bring swapped-out requests back, in their order. Not in an iteration that swaps out.

        Who only lacks his client's budget does not hold up the others.
        """
        scheduler, plan = self._scheduler, draft.plan
        if plan.copies_out:
            if scheduler.swapped:
                plan.blocked = Waiting(scheduler.swapped[0].id, Reason.PREEMPTION, "swapped out in this iteration")
            return
        for request in scheduler.swapped.copy():
            blocked = self._bring_back(request, draft)
            if blocked is None:
                scheduler.swapped.remove(request)
            elif blocked.reason is not Reason.CLIENT_BUDGET:
                plan.blocked = blocked
                return

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
        formed = not batch.alive and len(waiting) > 0
        if formed:
            batch.form(self._fitting())
        for request in batch.to_admit():
            why = scheduler.policy.keeps_back(request) if request.status is RequestStatus.WAITING else None
            blocked = self._start(request, draft) if why is None else Waiting(request.id, Reason.POLICY, why)
            if blocked is not None:
                plan.blocked = blocked
                if blocked.reason not in (Reason.BUDGET, Reason.CLIENT_BUDGET):
                    batch.leave_out_waiting()
                break
        if formed:
            plan.padding = batch.padding()
            plan.slots = max(plan.slots, len(batch.members))
        if plan.blocked is None and len(waiting):
            head, size = waiting.head(), len(batch.members)
            detail = f"the batch runs until its longest member ends: {batch.alive} of {size} slots still work"
            plan.blocked = Waiting(head.id, Reason.STATIC_BATCH, detail)

    def _fitting(self) -> list[Request]:
        """The first waiting requests whose prompts fit the free blocks together, at most one a slot.

        At least the head: whatever keeps it back is told when it is tried.
        """
        scheduler, config = self._scheduler, self._scheduler.config
        members = [scheduler.waiting.head()]
        free = scheduler.pool.num_free - self._blocks_to_join(members[0])
        free -= int(config.watermark * config.num_blocks)
        for request in islice(scheduler.waiting, scheduler.slots):
            if request is members[0]:
                continue
            free -= self._blocks_to_join(request)
            if free < 0 or len(members) == scheduler.slots:
                break
            members.append(request)
        return members

    def _blocks_to_join(self, request: Request) -> int:
        config = self._scheduler.config
        return self.most_blocks(request) if config.reserve_output else -(-request.num_tokens // config.block_size)

    def room_for(self, request: Request, draft: Draft, without: Sequence[Request] = ()) -> bool:
        """Whether a request could start in this iteration if the running ones in `without` were gone."""
        scheduler, config, pool = self._scheduler, self._scheduler.config, self._scheduler.pool
        if len(scheduler.running) - len(without) >= scheduler.slots:
            return False
        budget, quota = draft.budget, draft.quota
        for one in scheduler.running:
            if one not in without:
                wants = one.num_tokens - one.num_computed
                wants = min(wants, draft.threshold or wants)
                budget -= wants
                quota -= wants if one.client == request.client else 0
        if budget <= 0 or (draft.quota and quota <= 0):
            return False
        if request.status is RequestStatus.SWAPPED:
            hits = lookup(pool, request, config.block_size, request.num_computed)
            start = request.num_computed
        else:
            hits = lookup(pool, request, config.block_size, request.num_tokens - 1)
            start = len(hits) * config.block_size
        prefills = start < request.num_tokens - 1
        if prefills and (draft.hold or (not config.enable_chunked_prefill and request.num_tokens - start > budget)):
            return False
        return self._shortage(request, hits, request.num_tokens, without) is None

    def _next(self, draft: Draft) -> tuple[Request, Waiting | None]:
        """Whose turn it is, and why he may not start."""
        scheduler = self._scheduler
        request = scheduler.waiting.head()
        if draft.quota and draft.quota_left(request.client) <= 0:
            # Costs more with more waiting; only this knob does.
            found = next((one for one in scheduler.waiting if draft.quota_left(one.client) > 0), None)
            if found is None:
                detail = f"client {request.client} has had its {draft.quota} tokens of this iteration"
                return request, Waiting(request.id, Reason.CLIENT_BUDGET, detail)
            request = found
        why = scheduler.policy.keeps_back(request)
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

    def _shortage(
        self, request: Request, hits: Sequence[int], upto: int, without: Sequence[Request] = ()
    ) -> Waiting | None:
        """Why the blocks for `upto` tokens, the first of them in `hits`, cannot be had; None when they can.

        without: running requests to be thought away.
        """
        scheduler = self._scheduler
        config, pool = scheduler.config, scheduler.pool
        if config.scheduler_reserve_full_isl:
            upto = max(upto, min(len(request.token_ids), config.model_len))
        freed = {block for one in without for block in one.block_table if pool.ref[block] == 1} if without else ()
        revived = sum(pool.ref[block] == 0 or block in freed for block in hits)
        blocks, promised = -(-upto // config.block_size), 0
        if config.reserve_output:
            blocks = max(blocks, self.most_blocks(request))
            staying = (one for one in scheduler.running if one not in without)
            promised = sum(self.most_blocks(one) - len(one.block_table) for one in staying)
        need = max(0, blocks - len(hits)) + revived
        reserve = int(config.watermark * config.num_blocks) if len(scheduler.running) > len(without) else 0
        free = pool.num_free + len(freed)
        if need + promised + reserve <= free:
            return None
        if need + promised <= free:
            detail = f"needs {need} blocks, {pool.num_free} free, {reserve} kept by the watermark"
            return Waiting(request.id, Reason.WATERMARK, detail)
        kept = f", {promised} promised to running ones" if promised else ""
        return Waiting(request.id, Reason.BLOCKS, f"needs {need} blocks, {pool.num_free} free{kept}")

    def most_blocks(self, request: Request) -> int:
        """Blocks of a request at its longest; the last token is sampled but never computed."""
        return self._blocks(request, request.num_prompt + self._scheduler.most_output(request) - 1)

    def likely_blocks(self, request: Request) -> int:
        """Blocks it will want: at its longest, or half as much again as now where nobody knows how long that is."""
        if request.params.max_tokens is not None:
            return self.most_blocks(request)
        return self._blocks(request, request.num_tokens * 3 // 2)

    def _blocks(self, request: Request, tokens: int) -> int:
        scheduler = self._scheduler
        most = min(-(-tokens // scheduler.config.block_size), scheduler.pool.num_usable)
        return max(most, len(request.block_table))
