"""Taking the KV from running requests: whom, why, and what becomes of it.

Three causes: blocks are short for another running request, the pool was made smaller, or the policy puts a waiting
request first. Two ways: the tokens are computed again later (vLLM V1), or the KV is copied to the swap pool and back
(vLLM V0); a full swap pool falls back to the first.

Invariant: outside vLLM's exact settings the oldest running request is never preempted for lack of blocks while
another one runs, so somebody always gets to his end.
"""

from __future__ import annotations

from bisect import insort
from typing import TYPE_CHECKING

from engine.plan import Draft
from engine.policies import VICTIMS
from engine.records import Cause, Preempted
from engine.request import Request, RequestStatus

if TYPE_CHECKING:
    from engine.scheduler import Scheduler


class Eviction:
    """Part of a Scheduler, whose queues and pools it changes."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def victim(self) -> int:
        """Index of the running request to preempt."""
        scheduler = self._scheduler
        running, policy = scheduler.running, scheduler.policy
        asked = scheduler.config.victim
        rule = VICTIMS[policy.victim if asked == "auto" else asked]
        if scheduler.exact or len(running) == 1:
            return rule(running, policy)
        oldest = self._oldest()
        at = rule([request for request in running if request is not oldest], policy)
        return at + (running.index(oldest) <= at)

    def preempt(self, at: int, draft: Draft, *, by: str, need: int, cause: Cause = Cause.BLOCKS) -> Request:
        """Take all blocks from a running request and send it back to wait."""
        scheduler, plan = self._scheduler, draft.plan
        pool = scheduler.pool
        victim = scheduler.running.pop(at)
        dropped = draft.take_back(victim)
        free, computed, blocks = pool.num_free, victim.num_computed, victim.block_table
        if dropped:
            # It was given tokens in this very iteration: their blocks are listed in the prefix cache already, but
            # nobody will write them.
            for block in blocks[computed // scheduler.config.block_size : victim.num_registered]:
                pool.forget(block)
        swapped = self._swap_out(victim, draft)
        pool.release(blocks, victim.id)
        freed = pool.num_free - free
        lost = 0 if swapped else computed
        plan.preempted.append(Preempted(victim.id, by, need, free, lost, freed, cause, swapped))
        victim.block_table = []
        victim.num_registered = 0
        victim.num_preemptions += 1
        if swapped:
            victim.status = RequestStatus.SWAPPED
            self.queue_swapped(victim)
        else:
            victim.high_water = max(victim.high_water, computed)
            victim.num_computed = 0
            victim.status = RequestStatus.PREEMPTED
            scheduler.waiting.readd(victim)
        return victim

    def queue_swapped(self, request: Request) -> None:
        """In a queue of their own, before all waiting ones (vLLM V0); a preemptive policy ranks them with the rest."""
        scheduler = self._scheduler
        if scheduler.displacing:
            scheduler.waiting.readd(request)
        else:
            insort(scheduler.swapped, request, key=scheduler.age)

    def _swap_out(self, victim: Request, draft: Draft) -> int:
        """Find swap blocks for a victim's KV; 0 when it is to be computed again."""
        scheduler = self._scheduler
        if scheduler.config.preemption_mode != "swap":
            return 0
        count = -(-victim.num_computed // scheduler.config.block_size)
        if not 0 < count <= scheduler.swap_pool.num_free:
            return 0
        victim.cpu_blocks = scheduler.swap_pool.take(count)
        draft.plan.copies_out += zip(victim.block_table, victim.cpu_blocks, strict=False)
        return count

    def fit_pool(self, draft: Draft) -> None:
        """Bring the pool to num_blocks: end who no longer fits into it, preempt just enough, switch blocks off."""
        scheduler = self._scheduler
        pool, usable = scheduler.pool, scheduler.config.usable_blocks
        if pool.num_usable == usable:
            return
        most = usable * scheduler.config.block_size
        for request in list(scheduler.requests.values()):
            if request.num_tokens > most:
                scheduler.abort(request.id)
                detail = f"{request.num_tokens} tokens do not fit into the {usable} KV blocks that are left"
                draft.plan.ended.append((request, detail))
        surplus = pool.num_usable - usable
        while pool.num_free < surplus:
            self.preempt(self.victim(), draft, by="", need=surplus, cause=Cause.SHRINK)
        pool.resize(usable)

    def displace(self, draft: Draft) -> None:
        """Let the policy's head take the place of running requests that the policy ranks behind it.

        All or nothing: nobody goes unless the head has room then. No protection of the oldest here: to put others
        first is what such a policy is for; that it gets its turn is what `aging` is for.
        """
        scheduler = self._scheduler
        policy = scheduler.policy
        room_for = scheduler.admission.room_for
        if not len(policy) or room_for(policy.head(), draft):
            return
        head = policy.head()
        if scheduler.waiting.head() is not head:
            return  # one who has waited too long is next, whom the policy was not asked about
        # Who was computed again is left in peace until he has got twice as far as before: two could take turns for ever
        # otherwise, and so all that is done again stays below all that is done.
        left = [request for request in scheduler.running if request.num_computed >= 2 * request.high_water]
        gone: list[Request] = []
        while not room_for(head, draft, gone):
            at = policy.displaced(left) if left else None
            if at is None:
                return
            gone.append(left.pop(at))
        for one in gone[:-1]:  # without him the last one would not have sufficed; without others maybe it does
            if room_for(head, draft, [other for other in gone if other is not one]):
                gone.remove(one)
        need = -(-head.num_tokens // scheduler.config.block_size)
        for victim in gone:
            at = scheduler.running.index(victim)
            self.preempt(at, draft, by=head.id, need=need, cause=Cause.DISPLACED)

    def _oldest(self) -> Request:
        return min(self._scheduler.running, key=self._scheduler.age)
