"""An engine host without an engine: a toy scheduler whose records are consistent, for tests and demos.

`advance(n)` runs n iterations on the spot; nothing happens by itself unless `by_itself=True`, when each `drain`
runs what is due by the wall clock. First come first served, chunked prefill, recompute preemption of the newest
request, prefix reuse by equal leading blocks. The text it "generates" is a fixed list of pieces.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace
from typing import Any

from engine.clock import ManualClock
from engine.commands import Abort, Command, Pause, Resume, RunSteps, SetKnob, SetPace, Stop, Submit
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.host import EngineInfo, InFlight, Observer
from engine.records import (
    WAITING_HEAD,
    Arrived,
    BlockChange,
    Finished,
    Iteration,
    Kind,
    KnobChange,
    Limit,
    Phase,
    Preempted,
    Reason,
    Rejected,
    Scheduled,
    Timings,
    Token,
    Unscheduled,
    Waiting,
)
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams

TEXT = (
    "Paged attention stores the keys and values of a sequence in fixed size blocks that need not be next to each "
    "other, so memory grows one block at a time and no space is reserved for tokens that may never come. "
)
PIECES = tuple(TEXT.split(" "))
KNOBS = {"num_blocks": 64, "block_size": 16, "max_num_batched_tokens": 64, "max_num_seqs": 6}


class Job:
    def __init__(self, request: Request, max_tokens: int, number: int) -> None:
        self.id, self.client, self.priority = request.id, request.client, request.priority
        self.prompt = tuple(request.token_ids)
        self.known = list(request.token_ids)
        self.max_tokens = max_tokens
        self.arrival = request.arrival or 0.0
        self.number = number
        self.computed = self.high = self.cached = self.preemptions = self.recomputed = 0
        self.blocks: list[int] = []
        self.running = False

    @property
    def output(self) -> int:
        return len(self.known) - len(self.prompt)


class ScriptedHost:
    def __init__(
        self,
        knobs: dict[str, Any] | None = None,
        *,
        pieces: tuple[str, ...] = PIECES,
        by_itself: bool = False,
        step_seconds: float = 0.05,
        pace: float | None = None,
        paused: bool = False,
    ) -> None:
        self.config = EngineConfig.resolve(KNOBS | (knobs or {}))
        self.clock = ManualClock()
        self.observer: Observer | None = None
        self.pieces = tuple(piece if piece.startswith(" ") or not n else " " + piece for n, piece in enumerate(pieces))
        self.by_itself, self.step_seconds, self.pace, self.paused = by_itself, step_seconds, pace, paused
        self.commands: deque[Command] = deque()
        self.posted: list[Command] = []
        self.records: deque[Iteration] = deque()
        self.started = self.stopped = False
        self.observer: Observer | None = None
        self.stuck = 0.0
        """Seconds `stop` takes before it gives up, like an engine inside one long step."""
        self.seq, self.step, self.version = 0, 0, 0
        self.steps_left: int | None = None
        self.waiting: list[Job] = []
        self.running: list[Job] = []
        self.planned: list[Request] = []
        self.jobs = 0
        self.free: deque[int] = deque(range(1, self.config.num_blocks))
        self.owner: list[str | None] = [None] * self.config.num_blocks
        self.refs = [1] + [0] * (self.config.num_blocks - 1)
        self.key_of: dict[int, tuple[int, ...]] = {}
        self.block_of: dict[tuple[int, ...], int] = {}
        self.touched: set[int] = set()
        self.blocked: Waiting | None = None
        self._due = 0.0

    # ---- EngineHost -------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        return EngineInfo("scripted-0.1b", "cpu", "float32", 1, self.config, 1000, 1 << 20, 123_456)

    in_flight: InFlight | None = None
    """Tests set it to play a long iteration."""

    @property
    def alive(self) -> bool:
        return self.started and not self.stopped

    def start(self) -> None:
        self.started = True
        self._due = time.perf_counter()

    def post(self, command: Command) -> None:
        self.posted.append(command)
        self.commands.append(command)

    def drain(self, limit: int | None = None) -> list[Iteration]:
        if self.by_itself and self.alive:
            now = time.perf_counter()
            pause = max(self.step_seconds, 1 / self.pace if self.pace else 0)
            for _ in range(200):
                if self._due > now:
                    break
                self._due += pause
                self.advance(1)
            else:
                self._due = now
        else:
            self.advance(0)
        count = len(self.records) if limit is None else min(limit, len(self.records))
        return [self.records.popleft() for _ in range(count)]

    def observe(self, observer: Observer | None) -> None:
        if self.observer is not None:
            self.observer.close()
        self.observer = observer
        if observer is not None:
            for record in self.records:
                observer.add(record)

    def now(self) -> float:
        return self.clock.now()

    def stop(self, timeout: float = 1.0) -> bool:
        time.sleep(min(self.stuck, timeout))
        self.stopped = True
        if self.observer is not None:
            self.observer.close()
        return self.stuck <= timeout

    # ---- what a test does -------------------------------------------------------------------------

    def submit(self, id: str, prompt: int, max_tokens: int, client: str = "alice", **more: Any) -> None:
        ids = more.pop("ids", None) or [(len(id) * 7 + i * 13 + ord(id[-1])) % 1000 for i in range(prompt)]
        self.commands.append(Submit((Request(id, ids, SamplingParams(max_tokens=max_tokens), client=client, **more),)))

    def fault(self, trace: str) -> None:
        self._emit(fault=trace)
        self.stopped = True

    def advance(self, steps: int = 1) -> None:
        """Apply what was posted, then run up to `steps` iterations."""
        self._commands_only() if steps == 0 else None
        for _ in range(steps):
            self._iterate()

    # ---- the toy ----------------------------------------------------------------------------------

    def _commands_only(self) -> None:
        if not self.commands and not any((r.arrival or 0) <= self.clock.now() for r in self.planned):
            return
        told = self._apply()
        self._emit(**told)

    def _apply(self) -> dict[str, Any]:
        knobs: list[KnobChange] = []
        notices: list[str] = []
        arrived: list[Arrived] = []
        rejected: list[Rejected] = []
        finished: list[Finished] = []
        while self.commands:
            command = self.commands.popleft()
            match command:
                case Submit(requests):
                    for request in requests:
                        request.arrival = self.clock.now() if request.arrival is None else request.arrival
                        self.planned.append(request)
                case Abort(id):
                    for job in [job for job in (*self.running, *self.waiting) if job.id == id]:
                        finished.append(self._end(job, FinishReason.ABORT))
                case SetKnob(name, value):
                    old = getattr(self.config, name, None)
                    try:
                        self.config = self.config.change(name, value)
                    except ConfigError as error:
                        notices.append(f"refused {error}")
                    else:
                        self.version += 1
                        knobs.append(KnobChange(name, old, getattr(self.config, name), self.version))
                case Pause():
                    self.paused, self.steps_left = True, None
                case Resume():
                    self.paused, self.steps_left = False, None
                case RunSteps(steps):
                    self.paused, self.steps_left = False, steps
                case SetPace(pace):
                    self.pace = pace
                case Stop():
                    self.stopped = True
        for request in [r for r in self.planned if (r.arrival or 0) <= self.clock.now()]:
            self.planned.remove(request)
            most = self.config.model_len - request.num_prompt
            if most < 1:
                rejected.append(Rejected(request.id, request.client, f"prompt of {request.num_prompt} is too long"))
                continue
            self.jobs += 1
            job = Job(request, min(request.params.max_tokens or most, most), self.jobs)
            self.waiting.append(job)
            temperature = request.params.temperature
            sampling = "greedy" if request.params.greedy else f"T {temperature:g} seed {request.params.seed}"
            text = request.prompt_text
            arrived.append(
                Arrived(job.id, job.client, job.priority, job.arrival, job.prompt, text, job.max_tokens, sampling)
            )
        return {
            "knobs": tuple(knobs),
            "notices": tuple(notices),
            "arrived": tuple(arrived),
            "rejected": tuple(rejected),
            "finished": tuple(finished),
        }

    def _iterate(self) -> None:
        if self.stopped:
            return
        told = self._apply()
        start = self.clock.now()
        if self.paused or not (self.running or self.waiting):
            if self.commands or any(told.values()):
                self._emit(**told)
            self.clock.advance(self.step_seconds)
            return
        left = self.config.max_num_batched_tokens
        scheduled: dict[str, Scheduled] = {}
        preempted: list[Preempted] = []
        unscheduled: list[Unscheduled] = []
        for job in list(self.running):
            if not job.running:
                continue
            count = min(len(job.known) - job.computed, left)
            if count == 0:
                unscheduled.append(Unscheduled(job.id, Reason.BUDGET))
                continue
            need = self._need(job, count)
            while need > len(self.free) and job.running:
                victim = self.running[-1]
                lost, freed = victim.computed, len(victim.blocks)
                free = len(self.free)
                undone = scheduled.pop(victim.id, None)
                left += undone.num_tokens if undone else 0
                self._preempt(victim)
                preempted.append(Preempted(victim.id, job.id, need, free, lost, freed))
            if job.running:
                scheduled[job.id] = self._run(job, count, Kind.RUNNING)
                left -= count
        blocked = None
        while self.waiting and not preempted:
            job = self.waiting[0]
            if len(self.running) >= self.config.max_num_seqs:
                blocked = Waiting(job.id, Reason.SEQS, f"all {self.config.max_num_seqs} slots taken")
                break
            if left == 0:
                blocked = Waiting(job.id, Reason.BUDGET, "no tokens left in the budget")
                break
            hits = self._hits(job)
            need = -(-len(job.known) // self.config.block_size) - len(hits)
            taken = sum(1 for block in hits if self.refs[block] == 0)
            if need + taken > len(self.free):
                blocked = Waiting(job.id, Reason.BLOCKS, f"{need} blocks needed, {len(self.free)} free")
                break
            self.waiting.pop(0)
            scheduled[job.id] = self._admit(job, hits, left)
            left -= scheduled[job.id].num_tokens
        if preempted and self.waiting:
            blocked = Waiting(self.waiting[0].id, Reason.PREEMPTION, "nothing is admitted while others are preempted")
        if not scheduled:
            self.clock.advance(self.step_seconds)
            if any(told.values()):
                self._emit(**told)
            return
        self.blocked = blocked
        mid = len(self.free)
        tokens: list[Token] = []
        finished = list(told.pop("finished"))
        self.clock.advance(self.step_seconds + 0.0005 * sum(item.num_tokens for item in scheduled.values()))
        self.step += 1
        for job in list(self.running):
            if job.id in scheduled and job.computed == len(job.known):
                piece = self.pieces[job.output % len(self.pieces)]
                job.known.append((job.output * 31) % 1000)
                tokens.append(Token(job.id, job.known[-1], piece))
                if job.output >= job.max_tokens:
                    finished.append(self._end(job, FinishReason.LENGTH))
        if self.steps_left is not None:
            self.steps_left -= 1
            if self.steps_left <= 0:
                self.steps_left, self.paused = None, True
        limit = Limit.UNDERLOADED
        if preempted or (blocked and blocked.reason is Reason.BLOCKS):
            limit = Limit.KV_PRESSURE
        elif blocked and blocked.reason is Reason.SEQS:
            limit = Limit.SEQ_CAP
        elif left == 0:
            limit = Limit.TOKEN_BUDGET
        span = self.clock.now() - start
        self._emit(
            **told,
            start=start,
            timings=Timings(span * 0.01, span * 0.02, span * 0.9, span * 0.05, span * 0.02),
            scheduled=tuple(scheduled.values()),
            preempted=tuple(preempted),
            tokens=tuple(tokens),
            finished=tuple(finished),
            unscheduled=tuple(unscheduled),
            limit=limit,
            free_blocks_mid=mid,
        )

    def _need(self, job: Job, count: int) -> int:
        return -(-(job.computed + count) // self.config.block_size) - len(job.blocks)

    def _hits(self, job: Job) -> list[int]:
        size, hits = self.config.block_size, []
        while (len(hits) + 1) * size < len(job.known):
            block = self.block_of.get(tuple(job.known[: (len(hits) + 1) * size]))
            if block is None:
                break
            hits.append(block)
        return hits

    def _take(self, block: int, id: str) -> None:
        if self.refs[block] == 0:
            if block in self.free:
                self.free.remove(block)
            self.owner[block] = id
        self.refs[block] += 1
        self.touched.add(block)

    def _admit(self, job: Job, hits: list[int], left: int) -> Scheduled:
        kind = Kind.RESUMED if job.preemptions else Kind.NEW
        for block in hits:
            self._take(block, job.id)
        job.blocks = list(hits)
        job.computed = len(hits) * self.config.block_size
        if kind is Kind.NEW:
            job.cached = job.computed
        job.running = True
        self.running.append(job)
        return self._run(job, min(len(job.known) - job.computed, left), kind)

    def _run(self, job: Job, count: int, kind: Kind) -> Scheduled:
        before, size = job.computed, self.config.block_size
        old = len(job.blocks)
        for _ in range(self._need(job, count)):
            block = self.free.popleft()
            key = self.key_of.pop(block, None)
            if key is not None and self.block_of.get(key) == block:
                del self.block_of[key]
            self._take(block, job.id)
            job.blocks.append(block)
        job.computed += count
        for i in range(before // size, job.computed // size):
            key = tuple(job.known[: (i + 1) * size])
            if self.config.enable_prefix_caching and key not in self.block_of:
                self.block_of[key], self.key_of[job.blocks[i]] = job.blocks[i], key
                self.touched.add(job.blocks[i])
        recomputed = max(0, min(job.computed, job.high) - before)
        job.recomputed += recomputed
        job.high = max(job.high, job.computed)
        decode = count == 1 and before == len(job.known) - 1
        phase = Phase.RECOMPUTE if recomputed else Phase.DECODE if decode and job.output else Phase.PREFILL
        blocks = tuple(job.blocks if kind is not Kind.RUNNING else job.blocks[old:])
        return Scheduled(job.id, count, kind, phase, before, recomputed, blocks)

    def _release(self, job: Job) -> None:
        for block in reversed(job.blocks):
            self.refs[block] -= 1
            if self.refs[block] == 0:
                self.owner[block] = None
                self.free.append(block)
            elif self.owner[block] == job.id:
                self.owner[block] = next(
                    other.id for other in self.running if other is not job and block in other.blocks
                )
            self.touched.add(block)
        job.blocks = []
        job.running = False
        if job in self.running:
            self.running.remove(job)

    def _preempt(self, job: Job) -> None:
        self._release(job)
        job.computed = 0
        job.preemptions += 1
        self.waiting.insert(0, job)

    def _end(self, job: Job, reason: FinishReason) -> Finished:
        self._release(job)
        if job in self.waiting:
            self.waiting.remove(job)
        return Finished(
            job.id, job.client, reason, "", "", len(job.prompt), job.output, job.arrival, job.cached, job.preemptions,
            job.recomputed,
        )  # fmt: skip

    def _emit(self, start: float | None = None, free_blocks_mid: int | None = None, **told: Any) -> None:
        blocks = tuple(
            BlockChange(block, self.owner[block], self.refs[block], block in self.key_of)
            for block in sorted(self.touched)
        )
        self.touched.clear()
        waiting = tuple(job.id for job in self.waiting)
        record = Iteration(
            seq=self.seq,
            step=self.step,
            t_start=self.clock.now() if start is None else start,
            t_end=self.clock.now(),
            budget=self.config.max_num_batched_tokens,
            running=tuple(job.id for job in self.running),
            waiting=waiting[:WAITING_HEAD],
            num_waiting=len(waiting),
            free_blocks=len(self.free),
            free_blocks_mid=len(self.free) if free_blocks_mid is None else free_blocks_mid,
            blocked=self.blocked,
            blocks=blocks,
            knob_version=self.version,
            paused=self.paused,
            pace=self.pace,
            planned=len(self.planned),
        )
        self.seq += 1
        self.records.append(replace(record, **told))
        if self.observer is not None:
            self.observer.add(self.records[-1])


def busy_host(**options: Any) -> ScriptedHost:
    """A host with a small pool and traffic that makes every state appear within about 150 iterations."""
    host = ScriptedHost({"num_blocks": 36} | options.pop("knobs", {}), **options)
    requests = traffic()
    host.post(Submit(tuple(requests)))
    return host


def traffic(count: int = 36) -> list[Request]:
    clients = ("alice", "bob", "carol", "dave", "load", "load")
    prompts = (96, 24, 180, 40, 300, 16, 64, 64, 220, 48, 32, 90)
    outputs = (38, 30, 22, 46, 18, 33, 40, 25, 20, 16, 50, 12)
    shared = [i % 1000 for i in range(1000)]
    requests = []
    for n in range(count):
        length = prompts[n % 12]
        ids = shared[:length] if n % 3 == 0 else [(n * 97 + i * 13) % 1000 for i in range(length)]
        requests.append(
            Request(
                f"r{n}", ids, SamplingParams(max_tokens=outputs[n % 12]), client=clients[n % 6], arrival=0.16 * n,
                prompt_text=f"Prompt number {n} of the demo, about paged attention." if n % 2 else None,
            )
        )  # fmt: skip
    requests.append(Request("too-long", [1] * 2000, SamplingParams(max_tokens=8), client="mallory", arrival=3.0))
    return requests
