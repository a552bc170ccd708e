"""Continuous batching: which requests run in an iteration, with how many tokens, in which blocks.

A decode is nothing special: it is a request with one known token left to compute. An iteration first serves the
running list in order, preempting when blocks are short, then admits from the head of the waiting queue. With the
same settings the decisions are those of vLLM 0.33's V1 scheduler (synchronous, full attention), block numbers
included; `tests/parity` proves it. One deliberate difference: a request that is preempted after it was scheduled
in the same iteration does not leave keys on blocks that will never be written.

Invariants: the budget is never exceeded, except by one whole prompt when chunked prefill was switched off while
running; an admission never preempts; whatever fails changes nothing.
Omission: no tensors, no text, no clock here; who stops for which reason is the engine's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from engine.blocks import ROOT_KEY, BlockPool, content_key
from engine.config import EngineConfig
from engine.plan import Plan, PlanItem
from engine.policies import POLICIES
from engine.records import Kind, Preempted, PrefixStats, Reason, Unscheduled, Waiting
from engine.request import FinishReason, Request, RequestStatus


class Scheduler:
    """Owns the queues and the block pool. One `schedule()` and one `commit()` an iteration."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pool = BlockPool(config.num_blocks, caching=config.enable_prefix_caching)
        self.policy = POLICIES[config.policy]()
        self.waiting = self.policy.queue()
        self.running: list[Request] = []
        """In order of admission, never sorted."""
        self.requests: dict[str, Request] = {}
        """Waiting and running ones by id."""
        self.solo = False
        """Admit one request at a time (the engine's way out of a preemption storm; never set by the scheduler)."""
        # prefill_schedule_interval: executed iterations, the count after the last one that carried prefill, and
        # whether requests were left waiting by the last full admission pass.
        self._executed = 0
        self._last_prefill: int | None = None
        self._cap_bound = False

    # ---- requests and knobs, between iterations ---------------------------------------------------

    def add(self, request: Request) -> None:
        """Put a valid request (see `refusal`) into the waiting queue."""
        self.requests[request.id] = request
        self.waiting.add(request)

    def refusal(self, request: Request) -> str | None:
        """Why a request can never run, with the numbers; None when it can."""
        length, limit = request.num_prompt, self.config.model_len
        if length == 0:
            return "the prompt is empty"
        if length >= limit:
            return f"the prompt has {length} tokens, max_model_len {limit} leaves room for {limit - 1} and one output"
        blocks = -(-(length + 1) // self.config.block_size)
        if blocks > self.pool.num_usable:
            return f"the prompt needs {blocks} KV blocks, the pool has {self.pool.num_usable}"
        return None

    def most_output(self, request: Request) -> int:
        """Most output tokens a request can get."""
        room = self.config.model_len - request.num_prompt
        wanted = request.params.max_tokens
        return room if wanted is None else min(wanted, room)

    def abort(self, id: str) -> Request | None:
        """Remove a request wherever it is, freeing its blocks; None when it is unknown or finished."""
        request = self.requests.pop(id, None)
        if request is None:
            return None
        if request.status is RequestStatus.RUNNING:
            self.running.remove(request)
            self.pool.release(request.block_table, request.id)
            request.block_table = []
        else:
            self.waiting.remove(request)
        request.status = RequestStatus.FINISHED
        return request

    def configure(self, config: EngineConfig) -> None:
        """Go on with changed live knobs. Running requests beyond a lowered limit drain; nobody is thrown out."""
        if config.policy != self.config.policy:
            self.policy = POLICIES[config.policy]()
            self.waiting = self.policy.queue(list(self.waiting))
        self.config = config

    # ---- one iteration ----------------------------------------------------------------------------

    def schedule(self) -> Plan:
        """Decide the next iteration and take the blocks for it. The caller must run exactly what the plan says."""
        config = self.config
        budget = config.max_num_scheduled_tokens or config.max_num_batched_tokens
        plan = Plan(budget=budget)
        entrants = len(self.running) + len(self.waiting)
        threshold = config.long_prefill_token_threshold if entrants > 1 else 0
        if threshold and config.long_prefill_token_threshold_adaptive:
            threshold = max(threshold, config.max_num_batched_tokens // entrants)
        hold = self._hold_prompts()
        items: dict[str, PlanItem] = {}

        budget, carried = self._serve_running(plan, items, budget, threshold, hold)
        if not plan.preempted:
            budget, admitted_prefill = self._admit_waiting(plan, items, budget, threshold, hold, carried)
            carried |= admitted_prefill
            if not hold:
                self._cap_bound = len(self.waiting) > 0
        elif len(self.waiting):
            head = self.waiting.head()
            plan.blocked = Waiting(
                head.id, Reason.PREEMPTION, f"{len(plan.preempted)} preempted in this iteration: nothing is admitted"
            )

        for item in items.values():
            request = item.request
            request.num_computed += item.num_tokens
            item.samples = request.num_computed == len(request.token_ids)
            request.mid_prompt = not item.samples
        plan.items = list(items.values())
        plan.budget_left = max(budget, 0)
        plan.free_blocks = self.pool.num_free
        if items:
            self._executed += 1
        if carried:
            self._last_prefill = self._executed
        return plan

    def commit(
        self, plan: Plan, sampled: Sequence[int | None], ends: Callable[[Request, int], FinishReason | None]
    ) -> list[tuple[Request, FinishReason]]:
        """Append the sampled tokens (one per plan item, None where it did not sample) and free what finished.

        `ends(request, token)` is asked once the token is appended. A negative token stands for a row that could
        not be sampled; it is not appended, its blocks leave the prefix cache, and `ends` must name the reason.
        """
        finished: list[tuple[Request, FinishReason]] = []
        for item, token in zip(plan.items, sampled, strict=True):
            if token is None:
                continue
            request = item.request
            if token >= 0:
                request.token_ids.append(token)
            reason = ends(request, token)
            if token < 0:
                # Its K/V may be no numbers either: nobody else shall be served from them.
                for block in request.block_table[: request.num_registered]:
                    self.pool.forget(block)
            if reason is not None:
                self.pool.release(request.block_table, request.id)
                request.block_table = []
                request.status = RequestStatus.FINISHED
                del self.requests[request.id]
                finished.append((request, reason))
        if finished:
            self.running = [request for request in self.running if request.status is RequestStatus.RUNNING]
        return finished

    def length_reached(self, request: Request) -> bool:
        """Whether max_tokens or max_model_len ends it."""
        known, wanted = len(request.token_ids), request.params.max_tokens
        return known >= self.config.model_len or (wanted is not None and known - request.num_prompt >= wanted)

    # ---- the running pass -------------------------------------------------------------------------

    def _serve_running(
        self, plan: Plan, items: dict[str, PlanItem], budget: int, threshold: int, hold: bool
    ) -> tuple[int, bool]:
        """Give every running request its tokens, in order; returns the budget left and whether prefill ran."""
        running, pool = self.running, self.pool
        block_size, model_len = self.config.block_size, self.config.model_len
        carried = False
        index = 0
        while index < len(running) and budget > 0:
            request = running[index]
            if hold and request.mid_prompt:
                plan.unscheduled.append(Unscheduled(request.id, Reason.HELD))
                index += 1
                continue
            start = request.num_computed
            count = len(request.token_ids) - start
            if 0 < threshold < count:
                count = threshold
            count = min(count, budget, model_len - start - 1)
            if count == 0:
                index += 1
                continue
            need = -(-(start + count) // block_size) - len(request.block_table)
            evicted_itself = False
            while need > pool.num_free:
                at = self.policy.victim(running)
                victim = running.pop(at)
                dropped = items.pop(victim.id, None)
                if dropped is not None:
                    budget += dropped.num_tokens
                self._preempt(victim, plan, by=request, need=need, unwritten=dropped is not None)
                if victim is request:
                    evicted_itself = True
                    break
                if at < index:
                    index -= 1
            if evicted_itself:
                continue  # the running list closed up: `index` is the next one, or past the end
            new_blocks: Sequence[int] = ()
            if need > 0:
                new_blocks = pool.take(need, request.id)
                request.block_table.extend(new_blocks)
            if pool.caching:
                self._register(request, start + count)
            items[request.id] = PlanItem(request, count, start, Kind.RUNNING, new_blocks, False)
            carried |= request.mid_prompt
            budget -= count
            index += 1
        plan.unscheduled.extend(Unscheduled(request.id, Reason.BUDGET) for request in running[index:])
        if plan.preempted:
            gone = {victim.id for victim in plan.preempted}
            plan.unscheduled = [item for item in plan.unscheduled if item.id not in gone]
        return budget, carried

    def _preempt(self, victim: Request, plan: Plan, *, by: Request, need: int, unwritten: bool) -> None:
        """Take all blocks from a request and send it back to the waiting queue, to be computed again."""
        free = self.pool.num_free
        lost, blocks = victim.num_computed, victim.block_table
        if unwritten:
            # It was given tokens in this very iteration: their blocks are listed in the prefix cache already, but
            # nobody will write them.
            for block in blocks[lost // self.config.block_size : victim.num_registered]:
                self.pool.forget(block)
        self.pool.release(blocks, victim.id)
        plan.preempted.append(Preempted(victim.id, by.id, need, free, lost, self.pool.num_free - free))
        victim.block_table = []
        victim.high_water = max(victim.high_water, lost)
        victim.num_computed = victim.num_registered = 0
        victim.num_preemptions += 1
        victim.status = RequestStatus.PREEMPTED
        self.waiting.readd(victim)

    # ---- the waiting pass -------------------------------------------------------------------------

    def _admit_waiting(
        self, plan: Plan, items: dict[str, PlanItem], budget: int, threshold: int, hold: bool, carried: bool
    ) -> tuple[int, bool]:
        """Admit from the head of the queue while everything fits; says in the plan what stopped it."""
        config, pool, waiting = self.config, self.pool, self.waiting
        block_size = config.block_size
        slots = 1 if self.solo else config.max_num_active_seqs or config.max_num_seqs
        prefix = [0, 0, 0, 0]
        prefill = False
        while len(waiting):
            request = waiting.head()
            if budget <= 0:
                plan.blocked = Waiting(request.id, Reason.BUDGET, f"the budget of {plan.budget} tokens is used up")
                break
            if len(self.running) >= slots:
                plan.blocked = Waiting(request.id, Reason.SEQS, f"{len(self.running)} of {slots} slots taken")
                break
            hits = self._lookup(request) if pool.caching else []
            start, known = len(hits) * block_size, len(request.token_ids)
            if hold and start < known - 1:
                every = config.prefill_schedule_interval
                plan.blocked = Waiting(request.id, Reason.HELD, f"prompts run every {every} iterations")
                break
            count = known - start
            if 0 < threshold < count:
                count = threshold
            if not config.enable_chunked_prefill and count > budget:
                # A prompt above the whole budget (possible only after a live change) runs in one piece as the only
                # prompt of its iteration; it would wait for ever otherwise.
                if count <= config.max_num_batched_tokens or carried or prefill:
                    plan.blocked = Waiting(
                        request.id, Reason.BUDGET, f"{count} tokens in one piece, {budget} of {plan.budget} left"
                    )
                    break
            else:
                count = min(count, budget)
            plan.blocked = self._shortage(request, hits, start + count)
            if plan.blocked is not None:
                break

            waiting.pop()
            pool.share(hits, request.id)
            need = max(0, -(-(start + count) // block_size) - len(hits))
            request.block_table = [*hits, *pool.take(need, request.id)]
            request.num_computed, request.num_registered = start, len(hits)
            if pool.caching:
                self._register(request, start + count)
                at = 2 if request.num_preemptions else 0
                prefix[at] += known
                prefix[at + 1] += start
            kind = Kind.RESUMED if request.num_preemptions else Kind.NEW
            if kind is Kind.NEW:
                request.cached_tokens = start
            request.status = RequestStatus.RUNNING
            self.running.append(request)
            items[request.id] = PlanItem(request, count, start, kind, tuple(request.block_table), False)
            prefill |= start < known - 1
            budget -= count
        plan.prefix = PrefixStats(*prefix)
        return budget, prefill

    def _shortage(self, request: Request, hits: Sequence[int], upto: int) -> Waiting | None:
        """Why the blocks for `upto` tokens, the first of them in `hits`, cannot be had; None when they can."""
        config, pool = self.config, self.pool
        if config.scheduler_reserve_full_isl:
            upto = max(upto, min(len(request.token_ids), config.model_len))
        revived = sum(pool.ref[block] == 0 for block in hits)
        need = max(0, -(-upto // config.block_size) - len(hits)) + revived
        reserve = int(config.watermark * pool.num_blocks) if self.running else 0
        if need + reserve <= pool.num_free:
            return None
        if need <= pool.num_free:
            detail = f"needs {need} blocks, {pool.num_free} free, {reserve} kept by the watermark"
            return Waiting(request.id, Reason.WATERMARK, detail)
        return Waiting(request.id, Reason.BLOCKS, f"needs {need} blocks, {pool.num_free} free")

    # ---- prefix cache -----------------------------------------------------------------------------

    def _lookup(self, request: Request) -> list[int]:
        """Cached blocks for the beginning of a request. Its last known token is always computed anew."""
        hits: list[int] = []
        for index in range((len(request.token_ids) - 1) // self.config.block_size):
            block = self.pool.lookup(self._key(request, index))
            if block is None:
                break
            hits.append(block)
        return hits

    def _register(self, request: Request, upto: int) -> None:
        """List the full blocks within the first `upto` tokens, before the model has filled them."""
        for index in range(request.num_registered, upto // self.config.block_size):
            self.pool.register(request.block_table[index], self._key(request, index))
            request.num_registered = index + 1

    def _key(self, request: Request, index: int) -> bytes:
        keys, size = request.block_keys, self.config.block_size
        while len(keys) <= index:
            at = len(keys) * size
            keys.append(content_key(keys[-1] if keys else ROOT_KEY, request.token_ids[at : at + size]))
        return keys[index]

    # ---- prefill_schedule_interval ----------------------------------------------------------------

    def _hold_prompts(self) -> bool:
        every = self.config.prefill_schedule_interval
        if every == 1 or self._cap_bound or self._last_prefill is None:
            return False
        if self._executed + 1 - self._last_prefill >= every:
            return False
        return any(not request.mid_prompt for request in self.running)
