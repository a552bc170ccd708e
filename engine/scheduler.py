"""Continuous batching: which requests run in an iteration, with how many tokens, in which blocks.

A decode is nothing special: it is a request with one known token left to compute. An iteration first serves the
running list in order, preempting when blocks are short (`Eviction`), then admits from the head of the waiting queue
(`Admission`). With vLLM-shaped settings the decisions are those of vLLM 0.33's V1 scheduler (synchronous, full
attention), block numbers included; `tests/parity` proves it. One deliberate difference: a request that is preempted
after it was scheduled in the same iteration does not leave keys on blocks that will never be written.

Beside those rules, and never changing them: static batching, swap, other policies and victims, per-client budgets,
and a pool that shrinks and grows.

Invariants: the budget is never exceeded, except by one whole prompt when chunked prefill was switched off while
running; an admission never preempts; whatever fails changes nothing.
Omission: no tensors, no text, no clock here; who stops for which reason is the engine's to say.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.admission import Admission
from engine.blocks import BlockPool
from engine.config import EngineConfig
from engine.eviction import Eviction
from engine.plan import Draft, Plan
from engine.policies import Policy, PolicyEnv, faults_of, make_policy
from engine.prefix import lookup, register
from engine.records import Cause, Kind, Phase, Reason, Scheduled, Unscheduled, Waiting
from engine.request import FinishReason, Request, RequestStatus
from engine.static import StaticBatch
from engine.swap import SwapPool
from engine.thrash import Pressure
from engine.waiting import WaitingQueue


class Scheduler:
    """Owns the queues and the block pools. One `schedule()` and one `finish()` an iteration."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.pool = BlockPool(max(config.num_blocks, config.allocated_blocks), caching=config.enable_prefix_caching)
        self.swap_pool = SwapPool(config.cpu_blocks)
        self.env = PolicyEnv(config, self._cached_tokens)
        self.waiting = WaitingQueue(make_policy(config.policy, self.env), self.age)
        self.running: list[Request] = []
        """In order of admission, never sorted."""
        self.swapped: list[Request] = []
        """Swapped-out requests in order of return; empty while `displacing`: then they are in the waiting queue."""
        self.batch = StaticBatch()
        self.requests: dict[str, Request] = {}
        """Running, swapped and waiting ones by id."""
        self.solo = False
        """Admit one request at a time (the engine's way out of a preemption storm; never set by the scheduler)."""
        self._serial = 0
        """Of the last request that joined the queue."""
        self.admission = Admission(self)
        self.eviction = Eviction(self)
        # prefill_schedule_interval: executed iterations, the count after the last one that carried prefill, and
        # whether requests were left waiting by the last full admission pass.
        self._executed = 0
        self._last_prefill: int | None = None
        self._cap_bound = False

    # ---- what the settings mean -------------------------------------------------------------------

    @property
    def policy(self) -> Policy:
        return self.waiting.policy

    @property
    def static(self) -> bool:
        return self.config.batching == "static"

    @property
    def displacing(self) -> bool:
        """The policy may put waiting requests in the place of running ones."""
        return self.policy.preemptive and not self.static

    @property
    def exact(self) -> bool:
        """Victims are vLLM's to the letter, so nobody is protected."""
        config, policy = self.config, self.policy
        return (
            policy.exact
            and config.victim == "auto"
            and config.preemption_mode == "recompute"
            and not (self.static or config.client_token_budget or config.reserve_output)
        )

    @property
    def slots(self) -> int:
        """Most requests that may run."""
        return 1 if self.solo else self.config.max_num_active_seqs or self.config.max_num_seqs

    @property
    def pool_tokens(self) -> int:
        """Most known tokens of a request that can go on: the next would not fit into all the blocks there are."""
        return self.config.usable_blocks * self.config.block_size

    @staticmethod
    def age(request: Request) -> tuple[float, int]:
        """The smaller, the longer it has been here."""
        return request.arrival or 0.0, request.serial

    # ---- requests and knobs, between iterations ---------------------------------------------------

    def add(self, request: Request) -> None:
        """Put a valid request (see `refusal`) into the waiting queue."""
        self._limit(request)
        if request.expected_output is None:
            request.expected_output = self.most_output(request)
        self.requests[request.id] = request
        self._serial += 1
        request.serial = self._serial
        self.waiting.add(request)

    def refusal(self, request: Request) -> str | None:
        """Why a request can never run, with the numbers; None when it can."""
        length, limit = request.num_prompt, self.config.model_len
        if length == 0:
            return "the prompt is empty"
        if length >= limit:
            return f"the prompt has {length} tokens, max_model_len {limit} leaves room for {limit - 1} and one output"
        blocks, usable = -(-(length + 1) // self.config.block_size), self.config.usable_blocks
        if blocks > usable:
            return f"the prompt needs {blocks} KV blocks, the pool has {usable}"
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
            self.policy.ended(request)
        else:
            if request.status is RequestStatus.SWAPPED:
                self.swap_pool.give_back(request.cpu_blocks)
                request.cpu_blocks = []
            if request in self.swapped:
                self.swapped.remove(request)
                self.policy.ended(request)
            else:
                self.waiting.remove(request)
        request.status = RequestStatus.FINISHED
        self.solo = False
        return request

    def configure(self, config: EngineConfig) -> None:
        """Go on with changed live knobs. ConfigError, and nothing changed, when a policy cannot be loaded.

        Running requests beyond a lowered max_num_seqs drain; a smaller pool takes effect with the next `schedule`,
        which preempts just enough.
        """
        old = self.config
        if config.policy != old.policy:
            env = PolicyEnv(config, self._cached_tokens)
            env.now, env.token_seconds = self.env.now, self.env.token_seconds
            waiting = WaitingQueue(make_policy(config.policy, env), self.age)
            with faults_of(config.policy):
                for request in sorted(self.waiting, key=lambda one: one.serial):
                    waiting.add(request)
            self.env, self.waiting = env, waiting
        self.config = self.env.config = config
        if config.policy != old.policy or config.batching != old.batching:
            self._place_swapped()
        if config.batching != old.batching:
            self.batch.form([*self.running, *self.swapped] if self.static else [])
        if config.num_blocks != old.num_blocks:
            for request in self.requests.values():
                self._limit(request)
        if not self.requests:
            self.pool.resize(config.usable_blocks)

    def _limit(self, request: Request) -> None:
        """Settle at which length a request ends: by max_tokens, max_model_len or the whole pool."""
        request.most_tokens = min(request.num_prompt + self.most_output(request), self.pool_tokens + 1)

    def _place_swapped(self) -> None:
        """Put swapped-out requests where they now belong: into the waiting queue, or before it."""
        waiting = [request for request in self.waiting if request.status is RequestStatus.SWAPPED]
        for request in waiting:
            self.waiting.remove(request)
        swapped, self.swapped = [*self.swapped, *waiting], []
        for request in sorted(swapped, key=self.age):
            self.eviction.queue_swapped(request)

    # ---- one iteration ----------------------------------------------------------------------------

    def schedule(self, now: float = 0.0) -> Plan:
        """Decide the iteration that begins at `now` and take the blocks for it.

        The caller must run exactly what the plan says.
        """
        config = self.config
        self.env.now = now
        self.policy.begin()
        plan = Plan(budget=config.max_num_scheduled_tokens or config.max_num_batched_tokens)
        draft = Draft(plan, plan.budget, 0, False, config.client_token_budget)
        self.eviction.fit_pool(draft)
        plan.slots = max(config.max_num_seqs, len(self.running))
        if self.static:
            plan.slots = max(plan.slots, len(self.batch.members))
        entrants = len(self.running) + len(self.waiting) + len(self.swapped)
        threshold = config.long_prefill_token_threshold if entrants > 1 else 0
        if threshold and config.long_prefill_token_threshold_adaptive:
            threshold = max(threshold, config.max_num_batched_tokens // entrants)
        draft.threshold = threshold
        draft.hold = self._hold_prompts()
        if self.displacing:
            self.eviction.displace(draft)
            draft.hold = self._hold_prompts()

        self._serve_running(draft)
        self._admit(draft)
        if self.static and not plan.requests and self.running:
            plan.unscheduled.clear()
            self._serve_running(draft)  # nobody could join after all: those that waited for his prompt decode

        draft.settle()
        if self.policy.counts:
            for request, item, samples in zip(plan.requests, plan.scheduled, plan.samples, strict=True):
                self.policy.served(request, item.computed_before, item.num_tokens, samples)
        plan.free_blocks = self.pool.num_free
        if plan.requests:
            self._executed += 1
        if draft.prefilling:
            self._last_prefill = self._executed
        return plan

    def finish(self, ended: Sequence[tuple[Request, FinishReason]]) -> None:
        """Free what running requests that have ended hold, once the sampled tokens are appended."""
        for request, reason in ended:
            if reason is FinishReason.ERROR:
                # Its K/V may be no numbers: nobody else shall be served from them.
                for block in request.block_table[: request.num_registered]:
                    self.pool.forget(block)
            self.pool.release(request.block_table, request.id)
            request.block_table = []
            request.status = RequestStatus.FINISHED
            del self.requests[request.id]
            self.policy.ended(request)
        if ended:
            self.running = [request for request in self.running if request.status is RequestStatus.RUNNING]

    def outgrows_pool(self, request: Request) -> bool:
        """Its next token would not fit into all the blocks there are (a pool made smaller)."""
        return len(request.token_ids) > self.pool_tokens

    # ---- the passes -------------------------------------------------------------------------------

    def _serve_running(self, draft: Draft) -> None:
        """Give every running request its tokens, in order, preempting when blocks are short."""
        plan, pool, block_size = draft.plan, self.pool, self.config.block_size
        add_request, add_id = plan.requests.append, plan.ids.append
        add_item, add_samples = plan.scheduled.append, plan.samples.append
        new, kind, phase, running = tuple.__new__, Kind.RUNNING, Phase.DECODE, RequestStatus.RUNNING
        reading = self.static and self.batch.reading()
        # Nothing but blocks can keep a decode from running; and they last for all, so that nobody is preempted.
        unhindered = not (draft.hold or draft.quota or reading)
        roomy = pool.num_free >= len(self.running) + draft.budget // block_size
        budget, last = draft.budget, block_size - 1
        order = self.running.copy()
        for index, request in enumerate(order):
            if budget <= 0:
                plan.unscheduled.extend(Unscheduled(request.id, Reason.BUDGET) for request in order[index:])
                break
            if request.status is not running:
                continue  # preempted meanwhile
            start = request.num_computed
            within = start % block_size
            if unhindered and len(request.token_ids) == start + 1 and not request.mid_prompt and (within or roomy):
                # A decode, as nearly all of a full batch are. `_serve` would do the same in four times the time.
                new_blocks: tuple[int, ...] = ()
                if not within:
                    new_blocks = tuple(pool.take(1, request.id))
                    request.block_table += new_blocks
                if within == last and pool.caching:
                    register(pool, request, block_size, start + 1)
                id = request.id
                item: Scheduled = new(Scheduled, (id, 1, kind, phase, start, 0, new_blocks))
                add_request(request)
                add_id(id)
                add_item(item)
                add_samples(True)
                if roomy:
                    request.num_computed = start + 1
                else:
                    draft.given[id] = request, item
                budget -= 1
            else:
                draft.budget = budget
                self._serve(request, draft, reading)
                budget = draft.budget
        draft.budget = budget
        if plan.preempted:
            gone = {victim.id for victim in plan.preempted}
            plan.unscheduled = [item for item in plan.unscheduled if item.id not in gone]

    def _serve(self, request: Request, draft: Draft, reading: bool) -> None:
        """Give a running request its tokens, or say why it gets none."""
        pool, block_size = self.pool, self.config.block_size
        if draft.hold and request.mid_prompt:
            draft.plan.unscheduled.append(Unscheduled(request.id, Reason.HELD))
            return
        if reading and request.num_output and len(request.token_ids) == request.num_computed + 1:
            draft.plan.unscheduled.append(Unscheduled(request.id, Reason.STATIC_BATCH))
            return
        start = request.num_computed
        count = len(request.token_ids) - start
        if 0 < draft.threshold < count:
            count = draft.threshold
        count = min(count, draft.budget, self.config.model_len - start - 1)
        if draft.quota:
            count = min(count, draft.quota_left(request.client))
        if count <= 0:
            if draft.quota:
                draft.plan.unscheduled.append(Unscheduled(request.id, Reason.CLIENT_BUDGET))
            return
        upto = start + count
        need = -(-upto // block_size) - len(request.block_table)
        while need > pool.num_free:
            if self.eviction.preempt(self.eviction.victim(), draft, by=request.id, need=need) is request:
                return
        new_blocks: Sequence[int] = ()
        if need > 0:
            new_blocks = pool.take(need, request.id)
            request.block_table.extend(new_blocks)
        if pool.caching and upto // block_size > request.num_registered:
            register(pool, request, block_size, upto)
        draft.give(request, count, start, Kind.RUNNING, new_blocks)
        draft.prefilling |= request.mid_prompt

    def _admit(self, draft: Draft) -> None:
        """Let requests in, unless blocks were short in this iteration."""
        plan = draft.plan
        pressed = sum(victim.cause is not Cause.DISPLACED for victim in plan.preempted)
        if pressed:
            if len(self.waiting) or self.swapped:
                head = self.swapped[0] if self.swapped else self.waiting.head()
                plan.blocked = Waiting(
                    head.id, Reason.PREEMPTION, f"{pressed} preempted in this iteration: nothing is admitted"
                )
            return
        self.admission.swap_in(draft)
        if plan.blocked is not None:
            return
        if self.static:
            self.admission.admit_batch(draft)
        else:
            self.admission.admit(draft)
        if not draft.hold:
            self._cap_bound = len(self.waiting) > 0

    def _cached_tokens(self, request: Request) -> int:
        """Leading known tokens of a request that the prefix cache holds now."""
        size = self.config.block_size
        return len(lookup(self.pool, request, size, len(request.token_ids) - 1)) * size

    def pressure(self) -> Pressure:
        """What the running and preempted requests will want, for whoever explains a storm."""
        wanting = [r for r in self.requests.values() if r.status is RequestStatus.RUNNING or r.num_preemptions]
        return Pressure(
            needed_blocks=sum(map(self.admission.likely_blocks, wanting)),
            requests=len(wanting),
            usable_blocks=self.pool.num_usable,
            in_prompt=sum(not request.num_output for request in wanting),
            policy=self.config.policy,
        )

    def check(self, plan: Plan | None = None) -> None:
        """Prove the invariants of queues, pools and the last plan; AssertionError names what is broken."""
        if plan is not None:
            self._check_plan(plan)
        self.pool.check({id: request.block_table for id, request in self.requests.items()})
        self.swap_pool.check({id: request.cpu_blocks for id, request in self.requests.items()})
        places: dict[str, RequestStatus] = {}
        for queue in (self.running, self.swapped, self.waiting):
            for request in queue:
                assert request.id not in places, f"{request.id} is in two queues"
                assert self.requests.get(request.id) is request, f"{request.id} is queued but not known"
                places[request.id] = request.status
                assert (request.status is RequestStatus.RUNNING) == (queue is self.running), f"{request!r} misplaced"
                assert queue is self.running or not request.block_table, f"{request!r} holds blocks and does not run"
                assert bool(request.cpu_blocks) == (request.status is RequestStatus.SWAPPED), f"{request!r}"
        assert len(places) == len(self.requests), "a request is in no queue"
        assert len(self.waiting) == sum(
            request.status is not RequestStatus.RUNNING for request in self.requests.values()
        ) - len(self.swapped), "the queue miscounts"

    def _check_plan(self, plan: Plan) -> None:
        total = sum(item.num_tokens for item in plan.items)
        whole = not self.config.enable_chunked_prefill and plan.items and plan.items[-1].kind is not Kind.RUNNING
        assert total - (plan.items[-1].num_tokens if whole else 0) <= plan.budget, (
            f"{total} tokens, {plan.budget} allowed"
        )
        if self.config.policy == "fcfs" and not self.static and not self.config.client_token_budget:
            new = [item.request.serial for item in plan.items if item.kind is Kind.NEW]
            still = [request.serial for request in self.waiting if request.status is RequestStatus.WAITING]
            assert new == sorted(new) and still == sorted(still), "first come first served: out of order"
            assert not (new and still) or new[-1] < still[0], "first come first served: somebody was overtaken"

    # ---- prefill_schedule_interval ----------------------------------------------------------------

    def _hold_prompts(self) -> bool:
        every = self.config.prefill_schedule_interval
        if every == 1 or self._cap_bound or self._last_prefill is None or self.static:
            return False
        if self._executed + 1 - self._last_prefill >= every:
            return False
        return any(not request.mid_prompt for request in self.running)
