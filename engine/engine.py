"""`Engine`: requests in, one `Iteration` record out for every step.

A step applies what was asked since the last one, lets the scheduler decide, runs the plan, commits the tokens and
publishes one record. Nothing else is told to anybody. Not thread-safe: one thread owns an engine (`EngineThread`,
or a headless run).

Invariant: every submitted request gets exactly one end: `rejected`, or `finished` with a reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import islice

from engine.arrivals import Arrivals
from engine.clock import Clock, whole_ns
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.executors.base import Executor, Sampled
from engine.host import InFlight
from engine.output import Output
from engine.plan import Plan
from engine.policies import fault_of
from engine.progress import Progress
from engine.rebuild import Reencode, carry_over, encode_anew
from engine.records import (
    WAITING_HEAD,
    Arrived,
    Copied,
    Finished,
    Iteration,
    KnobChange,
    Limit,
    Preempted,
    Rebuilt,
    Rejected,
    Scheduled,
    Slots,
    Timings,
    Token,
)
from engine.request import FinishReason, Request, RequestStatus
from engine.scheduler import Scheduler
from engine.thrash import COPY_COST, ThrashDetector
from engine.tokenizer import Tokenizer

NOTHING_COPIED = Copied()
SMOOTHING = 0.2
"""Weight of the newest measurement of prefill speed."""


class Engine:
    """Scheduler, executor and text of all requests, advanced one iteration at a time."""

    def __init__(
        self,
        config: EngineConfig,
        executor: Executor,
        tokenizer: Tokenizer,
        clock: Clock,
        vocab_size: int | None = None,
    ) -> None:
        """`vocab_size`: the model's, where it can differ from the tokenizer's."""
        self.scheduler = Scheduler(config)
        self.executor = executor
        self.tokenizer = tokenizer
        self.clock = clock
        self.paused = False
        self.pace: float | None = None
        self.in_flight: InFlight | None = None
        """Set while the executor runs; other threads may look at it."""
        self.seq = 0
        self.step_count = 0
        self.knob_version = 0
        self._vocabulary = min(tokenizer.vocab_size, vocab_size or tokenizer.vocab_size)
        """Ids below this are known to tokenizer and model alike."""
        self._planned = Arrivals()
        self._outputs: dict[str, Output] = {}
        self._thrash = ThrashDetector()
        self._progress = Progress()
        self._check = os.environ.get("WORKBENCH_CHECK") == "1"
        self._shown_control: tuple[bool, float | None, int] = (False, None, 0)
        # What happened since the last record.
        self._arrived: list[Arrived] = []
        self._rejected: list[Rejected] = []
        self._aborted: dict[str, Finished] = {}
        self._knobs: list[KnobChange] = []
        self._preempted: list[Preempted] = []
        """By a rebuild."""
        self._rebuilt: Rebuilt | None = None
        self._notices: list[str] = []
        self._order: list[str] = []
        self._ended: dict[str, None] = {}
        """Ids of requests whose end is told by the next record; others may wait for it."""

    @property
    def config(self) -> EngineConfig:
        """The knobs as they are now."""
        return self.scheduler.config

    # ---- between iterations -----------------------------------------------------------------------

    def submit(self, request: Request, *, accepted: bool = False) -> None:
        """Take a request now, or at its `arrival` if that is in the future, or some time after the end of another one.

        A refusal is in the next record. Whom it comes `after` may be submitted later, before the next step.
        accepted: not asked again whether it can run (at a later arrival it is).
        """
        now = self.clock.now()
        if request.arrival is None:
            request.arrival = now
        if request.id in self._outputs or request.id in self._planned or request.id in self._aborted:
            self._reject(request, f"a request with id {request.id!r} is already here", again=True)
            return
        reason = None if accepted else self._refusal(request)
        if reason is None and request.after is not None and self._planned.waits_for(request.after, request.id):
            reason = f"it comes after {request.after!r}, which waits for it: a circle of 'after' has no beginning"
        if reason is not None:
            self._reject(request, reason)
        elif request.after is not None:
            self._planned.hold(request, request.after, now, known=self._will_end(request.after))
        elif request.arrival > now:
            self._planned.plan(request)
        elif request.late is not None:
            self._take(request)
        else:
            self._admit(request)

    def abort(self, id: str, detail: str = "aborted") -> None:
        """End a request wherever it is; unknown and finished ids are ignored."""
        held = self._planned.holds(id)
        planned = self._planned.remove(id)
        if planned is not None:
            planned.fill()
            if held:
                planned.arrival = self.clock.now()
            self._admit(planned)  # so that its end has a beginning in the records
        request = self.scheduler.abort(id)
        if request is not None:
            self.executor.release(id)
            self._aborted[id] = self._finish(request, FinishReason.ABORT, detail)
            self._order.append("x")

    def set_knob(self, name: str, value: object) -> None:
        """Change a live knob; ConfigError, and nothing changed, when it cannot be."""
        old = self.config
        new = old.change(name, value)
        self.scheduler.configure(new)
        self.knob_version += 1
        self._knobs.append(KnobChange(name, getattr(old, name), getattr(new, name), self.knob_version))
        self._order.append("k")

    def rebuild(self, new: Engine, model: str, dtype: str, reencode: Reencode | None = None) -> None:
        """Go on with the scheduler, executor and tokenizer of a freshly built engine. All requests are kept.

        model, dtype: of the new one, for the record. reencode: see `carry_over`.
        """
        old = self.config
        for id in self.scheduler.requests:
            self.executor.release(id)
        carried = carry_over(self.scheduler, new.scheduler, new._vocabulary, reencode)
        self.scheduler, self.executor, self.tokenizer = new.scheduler, new.executor, new.tokenizer
        self._vocabulary = new._vocabulary
        self._thrash = ThrashDetector()
        self._preempted += carried.preempted
        for request, reason, detail in carried.ended:
            self._aborted[request.id] = self._finish(request, reason, detail)
        for planned in list(self._planned):
            if reencode is not None:
                encode_anew(planned, reencode)
            why = self._refusal(planned)
            if why is not None:
                self._planned.remove(planned.id)
                self._reject(planned, why)
        if reencode is not None:
            for request in self.scheduler.requests.values():
                self._outputs[request.id] = self.make_output(request)
        self.knob_version += 1
        for name, value in self.config.values().items():
            if value != getattr(old, name):
                self._knobs.append(KnobChange(name, getattr(old, name), value, self.knob_version))
        self._order.append("b")
        prompts = dict(self._rebuilt.prompts) if self._rebuilt is not None else {}
        for request in carried.prompts:
            if request.status is not RequestStatus.FINISHED:
                prompts[request.id] = tuple(request.token_ids)
        for at, arrived in enumerate(self._arrived):  # nobody has been told their old prompts
            if arrived.id in prompts:
                self._arrived[at] = arrived._replace(prompt_ids=prompts.pop(arrived.id))
        self._rebuilt = Rebuilt(
            model,
            dtype,
            self.scheduler.pool.num_blocks,
            self.config.block_size,
            tuple(self.config.values().items()),
            tuple(prompts.items()),
        )
        for note in self.config.notes:
            if note not in old.notes:
                self.notice(note)

    def notice(self, text: str) -> None:
        """Put one line for people into the next record."""
        self._notices.append(text)

    def try_knob(self, name: str, value: object) -> None:
        """`set_knob` for askers who cannot be raised at: a refusal becomes a notice."""
        try:
            self.set_knob(name, value)
        except ConfigError as error:
            self.notice(f"refused {error}")

    def has_work(self) -> bool:
        """Whether anything runs, waits, or is still to arrive."""
        return bool(self.scheduler.requests or self._planned)

    def next_arrival(self) -> float | None:
        """When the next planned request arrives, on the engine's clock, as far as that is known."""
        first = self._planned.first()
        return first.arrival if first is not None else None

    def next_event(self) -> float | None:
        """When something happens by itself although nothing can run now: an arrival, or the end of a policy's wait."""
        times = [self.next_arrival(), self.scheduler.policy.wake() if len(self.scheduler.waiting) else None]
        return min((time for time in times if time is not None), default=None)

    # ---- one iteration ----------------------------------------------------------------------------

    def step(self, *, run: bool = True) -> Iteration | None:
        """Run one iteration; None when there was nothing to run and nothing to tell.

        With `run` false (paused) only what was asked meanwhile is applied and recorded. PolicyFault when a policy from
        outside has failed.
        """
        try:
            return self._step(run)
        except Exception as error:
            fault = fault_of(self.config.policy, error)
            if fault is None:
                raise
            raise fault from error

    def _step(self, run: bool) -> Iteration | None:
        begun = self.clock.now()
        self._take_arrivals(begun)
        plan = self.scheduler.schedule(begun) if run and self.scheduler.requests else Plan()
        if plan.eventful:
            return self._run(plan, begun)
        if not self._anything_to_tell():
            return None
        plan.free_blocks = self.scheduler.pool.num_free
        return self._publish(plan, begun, Timings(), (), (), [], Limit.UNDERLOADED)

    def _run(self, plan: Plan, begun: float) -> Iteration:
        for victim in plan.preempted:
            self.executor.release(victim.id)
        finished = []
        for outgrown, detail in plan.ended:
            self.executor.release(outgrown.id)
            reason = FinishReason.LENGTH if outgrown.num_output else FinishReason.ERROR
            finished.append(self._finish(outgrown, reason, detail))
        scheduled = tuple(plan.scheduled)
        limit = plan.limit
        decided = swapped = self.clock.now()
        copied = NOTHING_COPIED
        if plan.copies_out or plan.copies_in:
            size = self.executor.copy_blocks(plan.copies_out, plan.copies_in)
            copied = Copied(len(plan.copies_out), len(plan.copies_in), size)
            swapped = self.clock.now()
        # A lone request that preempted itself leaves nothing to run.
        sampled = Sampled([], 0.0, 0.0, 0.0)
        if plan.requests:
            self.in_flight = InFlight(
                self.step_count + 1,
                begun,
                tuple(plan.ids),
                plan.num_tokens,
                len(self.scheduler.waiting),
            )
            tokens_of, *taken = self.executor.execute(plan)
            sampled = Sampled(tokens_of, *map(whole_ns, taken))
            self.in_flight = None
        executed = self.clock.now()
        self._time_prefill(plan, sampled)

        self._watch(plan, any(token is not None for token in sampled.tokens))
        tokens, ended = self._read(plan, sampled.tokens)
        self.scheduler.finish(ended)
        for request, reason in ended:
            self.scheduler.solo = False
            if reason is FinishReason.ERROR:
                self.notice(f"request {request.id} failed: {self._outputs[request.id].detail}")
            self.executor.release(request.id)
            finished.append(self._finish(request, reason))
        if plan.requests:
            self.step_count += 1
        committed = self.clock.now() - executed
        build, forward, sample = sampled[1:]
        timings = Timings(
            whole_ns(decided - begun), build, forward, sample, whole_ns(committed), whole_ns(swapped - decided)
        )
        return self._publish(plan, begun, timings, scheduled, tuple(tokens), finished, limit, copied)

    def _read(
        self, plan: Plan, sampled: Sequence[int | None]
    ) -> tuple[list[Token], list[tuple[Request, FinishReason]]]:
        """Append the sampled tokens, make text of them, and tell who ends.

        A negative token stands for a row that could not be sampled; it is not appended.
        """
        tokens: list[Token] = []
        ended: list[tuple[Request, FinishReason]] = []
        outputs, new = self._outputs, tuple.__new__
        for request, token in zip(plan.requests, sampled, strict=True):
            if token is None:
                continue
            id, known = request.id, request.token_ids
            output = outputs[id]
            reason: FinishReason | None = None
            if token >= 0:
                known.append(token)
            piece = output.plain.get(token)
            if piece is None or token in output.end_ids:
                piece, reason = output.push(token)
            if token >= 0:
                tokens.append(new(Token, (id, token, piece)))  # in half the time of Token(...)
            if reason is None and len(known) >= request.most_tokens:
                reason = FinishReason.LENGTH
                if self.scheduler.outgrows_pool(request):
                    output.detail = f"all {self.config.usable_blocks} KV blocks are full"
            if reason is not None:
                ended.append((request, reason))
        return tokens, ended

    def _time_prefill(self, plan: Plan, sampled: Sampled) -> None:
        """Keep the policy's idea of what a token of prefill takes, from iterations that mostly read prompts."""
        count = plan.num_tokens
        if count >= 2 * len(plan.requests) and sampled.forward > 0:
            env = self.scheduler.env
            taken = sampled.forward / count
            env.token_seconds += (taken - env.token_seconds) * (SMOOTHING if env.token_seconds else 1.0)

    def _watch(self, plan: Plan, sampled: bool) -> None:
        """Name a preemption storm when one begins; end one in which nobody gets anywhere."""
        scheduler, progress = self.scheduler, self._progress
        copied = (len(plan.copies_out) + len(plan.copies_in)) * self.config.block_size
        wasted = plan.recomputed + int(copied * COPY_COST)
        if plan.requests and self._thrash.count(plan.preempted, plan.num_tokens, wasted):
            self.notice(self._thrash.name(scheduler.pressure()))
        stuck = progress.stuck(plan.requests, len(plan.preempted), sampled, len(scheduler.requests))
        if stuck and not scheduler.solo:
            scheduler.solo = True
            self.notice(
                f"{progress.fruitless} preemptions without progress: requests run one at a time until one ends; "
                "more blocks, fewer max_num_seqs or scheduler_reserve_full_isl would prevent this"
            )

    def _publish(
        self,
        plan: Plan,
        begun: float,
        timings: Timings,
        scheduled: tuple[Scheduled, ...],
        tokens: tuple[Token, ...],
        finished: list[Finished],
        limit: Limit,
        copied: Copied = NOTHING_COPIED,
    ) -> Iteration:
        scheduler = self.scheduler
        if not scheduler.requests:
            self._thrash.calm()
        now = self.clock.now()
        for id in self._ended:
            self._planned.release(id, now)
        record = Iteration(
            seq=self.seq,
            step=self.step_count,
            t_start=begun,
            t_end=now,
            timings=timings,
            budget=plan.budget,
            rebuilt=self._rebuilt,
            knobs=tuple(self._knobs),
            arrived=tuple(self._arrived),
            rejected=tuple(self._rejected),
            order="".join(self._order),
            scheduled=scheduled,
            preempted=(*self._preempted, *plan.preempted),
            tokens=tokens,
            finished=(*self._aborted.values(), *finished),
            running=tuple([request.id for request in scheduler.running]),
            waiting=tuple([request.id for request in islice(scheduler.waiting, WAITING_HEAD)]),
            num_waiting=len(scheduler.waiting),
            swapped=tuple([request.id for request in scheduler.swapped]),
            batch=tuple([request.id for request in scheduler.batch.members]),
            blocked=plan.blocked,
            unscheduled=tuple(plan.unscheduled),
            limit=limit,
            free_blocks_mid=plan.free_blocks,
            free_blocks=scheduler.pool.num_free,
            off_blocks=scheduler.pool.num_off,
            free_cpu_blocks=scheduler.swap_pool.num_free,
            blocks=scheduler.pool.changes(),
            slots=Slots(plan.slots, len(tokens), plan.padding) if scheduled else Slots(),
            copied=copied,
            prefix=plan.prefix,
            knob_version=self.knob_version,
            paused=self.paused,
            pace=self.pace,
            notices=tuple(self._notices),
            planned=len(self._planned),
            storm=self._thrash.cause,
        )
        self.seq += 1
        self._shown_control = (self.paused, self.pace, len(self._planned))
        self._aborted.clear()
        self._ended.clear()
        self._rebuilt = None
        for pending in (self._arrived, self._rejected, self._knobs, self._notices, self._preempted, self._order):
            pending.clear()
        if self._check:
            scheduler.check(plan)
        return record

    def fault_record(self, trace: str, unread: Sequence[Request] = ()) -> Iteration:
        """The last record of an engine that failed.

        Every request still alive ends with an error; the planned ones, and `unread` ones that never got here, are
        rejected.
        """
        self.in_flight = None
        scheduler, now = self.scheduler, self.clock.now()
        ended = [
            self._finished(output.request, FinishReason.ERROR, "the engine failed", "")
            for output in self._outputs.values()
        ]
        lost = [Rejected(r.id, r.client, "the engine failed") for r in (*self._planned, *unread)]
        return Iteration(
            seq=self.seq,
            step=self.step_count,
            t_start=now,
            t_end=now,
            knobs=tuple(self._knobs),
            arrived=tuple(self._arrived),
            rejected=(*self._rejected, *lost),
            finished=(*self._aborted.values(), *ended),
            free_blocks=scheduler.pool.num_free,
            free_blocks_mid=scheduler.pool.num_free,
            off_blocks=scheduler.pool.num_off,
            free_cpu_blocks=scheduler.swap_pool.num_free,
            knob_version=self.knob_version,
            paused=True,
            pace=self.pace,
            notices=tuple(self._notices),
            fault=trace,
        )

    def _anything_to_tell(self) -> bool:
        happened = self._arrived or self._rejected or self._aborted or self._knobs or self._notices or self._rebuilt
        return bool(happened) or self._shown_control != (self.paused, self.pace, len(self._planned))

    # ---- the life of a request --------------------------------------------------------------------

    def _refusal(self, request: Request) -> str | None:
        vocabulary = self._vocabulary
        ids = request.token_ids
        if ids and not (min(ids) >= 0 and max(ids) < vocabulary):
            return f"the prompt has token ids outside the vocabulary (0 to {vocabulary - 1})"
        return self.scheduler.refusal(request)

    def _will_end(self, id: str) -> bool:
        """Whether an end of this request is still to come, or to be told."""
        return id in self._outputs or id in self._planned or id in self._ended

    def _take_arrivals(self, now: float) -> None:
        self._planned.release_strays(self._will_end)
        for request in self._planned.due(now):
            self._take(request)

    def _take(self, request: Request) -> None:
        """A request that may have been planned: it is asked again, there may be fewer blocks than there were then."""
        reason = self.scheduler.refusal(request)
        if reason is None and request.late is not None:
            request.fill()
            reason = self._refusal(request)
        if reason is not None:
            self._reject(request, reason)
        else:
            self._admit(request)

    def _reject(self, request: Request, reason: str, *, again: bool = False) -> None:
        """again: another request of its name is here, and does not end with this one."""
        if not again:
            self._ended[request.id] = None
        self._rejected.append(Rejected(request.id, request.client, reason))
        self._order.append("r")

    def make_output(self, request: Request) -> Output:
        """What ends a request and makes text of it; an engine without a model has another."""
        return Output(request, self.tokenizer.detokenizer(), self.tokenizer.eos_ids)

    def _admit(self, request: Request) -> None:
        self.scheduler.add(request)
        self._outputs[request.id] = self.make_output(request)
        assert request.arrival is not None
        self._order.append("a")
        self._arrived.append(
            Arrived(
                request.id,
                request.client,
                request.priority,
                request.arrival,
                tuple(request.token_ids),
                request.prompt_text,
                self.scheduler.most_output(request),
                request.params.describe(),
                request.deadline,
                request.expected_output,
                request.params,
                request.session,
                request.after,
                request.delay,
            )
        )

    def _finish(self, request: Request, reason: FinishReason, detail: str = "") -> Finished:
        output = self._outputs.pop(request.id)
        self._ended[request.id] = None
        tail, reason = output.finish(reason)
        return self._finished(request, reason, detail or output.detail, tail)

    def _finished(self, request: Request, reason: FinishReason, detail: str, tail: str) -> Finished:
        assert request.arrival is not None
        return Finished(
            request.id,
            request.client,
            reason,
            detail,
            tail,
            request.num_prompt,
            request.num_output,
            request.arrival,
            request.cached_tokens,
            request.num_preemptions,
            request.recomputed_tokens,
        )
