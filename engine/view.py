"""`EngineView`: the state of the engine, rebuilt from its records alone.

A reducer: `view.apply(iteration)` folds one record in, in place, and returns the view. The live screen and a
recording use the same one; `copy()` makes a keyframe. Feed it every record in order of `seq`.

Omission: past the first WAITING_HEAD ids the order of the waiting queue is by arrival, which differs from the
engine's only when more than that many preempted or prioritised requests wait.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, fields
from operator import attrgetter

from engine.knobs import KnobValue
from engine.records import Arrived, Finished, Iteration, Kind, Phase, Preempted, Reason, Rebuilt
from engine.request import FinishReason, RequestStatus
from engine.sampling_params import SamplingParams

KEEP_FINISHED = 512
"""Finished requests a view remembers; older ones are forgotten so that memory stays flat."""


@dataclass(slots=True)
class RequestView:
    """One request as the records tell it. Times are engine-clock seconds, None until they happen."""

    id: str
    client: str
    priority: int
    arrival: float
    prompt_ids: tuple[int, ...]
    prompt_text: str | None
    max_tokens: int
    sampling: str
    deadline: float | None = None
    expected_output: int | None = None
    params: SamplingParams = SamplingParams()
    session: str | None = None
    after: str | None = None
    delay: float = 0.0
    status: RequestStatus = RequestStatus.WAITING
    phase: Phase | None = None
    """What it did in the last iteration that ran it."""
    computed: int = 0
    blocks: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    """Output tokens."""
    token_times: list[float] = field(default_factory=list)
    """When each output token was sampled."""
    token_steps: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    """Text that came with each output token, then the tail."""
    reason: Reason | None = None
    """Why it did not run in the last iteration (waiting, or running without tokens)."""
    detail: str = ""
    cached_tokens: int = 0
    swapped_blocks: int = 0
    """Blocks of the swap pool it holds."""
    preemptions: int = 0
    recomputed_tokens: int = 0
    first_scheduled: float | None = None
    finished_at: float | None = None
    finish_reason: FinishReason | None = None
    finish_detail: str = ""
    finished_step: int | None = None

    @property
    def prompt_len(self) -> int:
        return len(self.prompt_ids)

    @property
    def output_len(self) -> int:
        return len(self.token_ids)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def ttft(self) -> float | None:
        """Seconds from planned arrival to the first sampled token."""
        return self.token_times[0] - self.arrival if self.token_times else None


class EngineView:
    """Queues, requests, blocks and knobs after the last record folded in."""

    def __init__(self, num_blocks: int, block_size: int, knobs: dict[str, KnobValue]) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.knobs = dict(knobs)
        self.model = self.dtype = ""
        """Of the engine that was built last; "": still the first one."""
        self.knob_version = 0
        self.requests: dict[str, RequestView] = {}
        """Live ones and the last KEEP_FINISHED finished, in order of arrival."""
        self.running: tuple[str, ...] = ()
        self.peak_used = 0
        self._empty_pool()
        self.free_blocks = num_blocks - 1
        self.off_blocks = 0
        """Allocated blocks that num_blocks leaves out; their `refs` are -1."""
        self.free_cpu_blocks: int | None = None
        """None until a record tells."""
        self.swapped: tuple[str, ...] = ()
        """Swapped-out ids in order of return, where they have a queue of their own."""
        self.batch: tuple[str, ...] = ()
        """Members of the static batch by slot, the ended ones included."""
        self.storm = ""
        """Cause of a preemption storm while it lasts."""
        self.paused = False
        self.pace: float | None = None
        self.planned = 0
        self.num_waiting = 0
        self.last: Iteration | None = None
        self.seq = -1
        self.step = 0
        self.preemptions = 0
        self.rejected = 0
        self.finished: dict[FinishReason, int] = dict.fromkeys(FinishReason, 0)
        self.fault: str | None = None
        self.waiting_head: tuple[str, ...] = ()
        """The first WAITING_HEAD waiting ids in order of service."""
        self.queued: dict[str, None] = {}
        """All that wait, swapped out ones included, in the order in which they began to."""
        self._done: list[str] = []

    # ---- reading ----------------------------------------------------------------------------------

    @property
    def usable_blocks(self) -> int:
        """Blocks that requests can have now."""
        return self.num_blocks - 1 - self.off_blocks

    @property
    def used_blocks(self) -> int:
        return self.usable_blocks - self.free_blocks

    @property
    def kv_usage(self) -> float:
        return self.used_blocks / max(1, self.usable_blocks)

    def waiting_ids(self, limit: int | None = None) -> list[str]:
        """Waiting ids in order of service; exact for the first WAITING_HEAD."""
        ids = list(self.waiting_head)
        if limit is not None and len(ids) >= limit:
            return ids[:limit]
        head = {*ids, *self.swapped}
        for id in self.queued:
            if id not in head:
                ids.append(id)
                if limit is not None and len(ids) >= limit:
                    break
        return ids

    def live(self) -> list[RequestView]:
        """Running by order of admission, then swapped out, then waiting by order of service."""
        return [self.requests[id] for id in (*self.running, *self.swapped, *self.waiting_ids())]

    def reason_of(self, id: str) -> tuple[Reason | None, str]:
        """Why a request did not run in the last iteration, with the numbers as a sentence."""
        request = self.requests[id]
        if request.status in (RequestStatus.WAITING, RequestStatus.PREEMPTED, RequestStatus.SWAPPED):
            if self.paused:
                return Reason.PAUSED, "the engine is paused"
            blocked = self.last.blocked if self.last else None
            if blocked is not None and blocked.id != id:
                if blocked.reason in (Reason.PREEMPTION, Reason.STATIC_BATCH):
                    return blocked.reason, blocked.detail
                if blocked.id in self.swapped:
                    return Reason.SWAPPED, f"behind {blocked.id}, which is swapped out and waits for {blocked.reason}"
                return Reason.BEHIND_HEAD, f"behind {blocked.id}, which waits for {blocked.reason}"
            if blocked is not None:
                return blocked.reason, blocked.detail
        return request.reason, request.detail

    def copy(self) -> EngineView:
        """An independent view (a keyframe). Finished requests are shared: they no longer change."""
        new = copy.copy(self)
        new.requests = {
            id: request if request.status is RequestStatus.FINISHED else copy_request(request)
            for id, request in self.requests.items()
        }
        for name in ("knobs", "owners", "refs", "cached", "finished", "queued", "_done"):
            setattr(new, name, copy.copy(getattr(self, name)))
        return new

    # ---- folding ----------------------------------------------------------------------------------

    def apply(self, it: Iteration) -> EngineView:
        """Fold one record in. ValueError when records are missing or repeated."""
        if it.seq != self.seq + 1:
            raise ValueError(f"record {it.seq} cannot follow record {self.seq}")
        self.seq, self.step, self.last = it.seq, it.step, it
        if it.rebuilt is not None:
            self._rebuild(it.rebuilt)
        for change in it.knobs:
            self.knobs[change.name] = change.new
        for arrived in it.arrived:
            self._arrive(arrived)
        self.rejected += len(it.rejected)
        for victim in it.preempted:
            self._preempt(victim)
        self._schedule(it)
        requests, now, step = self.requests, it.t_end, it.step
        for id, token_id, text in it.tokens:
            request = requests[id]
            request.token_ids.append(token_id)
            request.token_times.append(now)
            request.token_steps.append(step)
            request.pieces.append(text)
        for done in it.finished:
            self._finish(done, it)
        for block, owner, ref, cached in it.blocks:
            self.owners[block], self.refs[block], self.cached[block] = owner, ref, cached
        for id, reason in it.unscheduled:
            request = self.requests[id]
            request.reason, request.detail, request.phase = reason, "", None
        self.running = it.running
        self.waiting_head = it.waiting
        self.num_waiting = it.num_waiting
        self.free_blocks = it.free_blocks
        self.off_blocks, self.free_cpu_blocks = it.off_blocks, it.free_cpu_blocks
        self.swapped, self.batch, self.storm = it.swapped, it.batch, it.storm
        used = self.usable_blocks - min(it.free_blocks_mid, it.free_blocks)
        self.peak_used = max(self.peak_used, used)
        self.knob_version, self.paused, self.pace, self.planned = it.knob_version, it.paused, it.pace, it.planned
        if it.fault is not None:
            self.fault = it.fault
        return self

    def _rebuild(self, rebuilt: Rebuilt) -> None:
        self.num_blocks, self.block_size = rebuilt.num_blocks, rebuilt.block_size
        self.knobs = dict(rebuilt.knobs)
        self.model, self.dtype = rebuilt.model, rebuilt.dtype
        self._empty_pool()
        for request in self.requests.values():
            if request.status is RequestStatus.SWAPPED:
                request.status, request.computed, request.swapped_blocks = RequestStatus.PREEMPTED, 0, 0
        for id, prompt_ids in rebuilt.prompts:
            self.requests[id].prompt_ids = prompt_ids

    def _empty_pool(self) -> None:
        self.owners: list[str | None] = [None] * self.num_blocks
        self.refs = [0] * self.num_blocks
        self.refs[0] = 1  # the null block
        self.cached = [False] * self.num_blocks
        self.peak_used = 0

    def _arrive(self, arrived: Arrived) -> None:
        if self.requests.pop(arrived.id, None) is not None:  # an id used again after its end
            self._done.remove(arrived.id)
        self.requests[arrived.id] = RequestView(*arrived)
        self.queued[arrived.id] = None

    def _preempt(self, victim: Preempted) -> None:
        request = self.requests[victim.id]
        if victim.swapped_blocks:
            request.status = RequestStatus.SWAPPED
        else:
            request.status, request.computed = RequestStatus.PREEMPTED, 0
        request.phase = None
        request.blocks = []
        request.swapped_blocks = victim.swapped_blocks
        request.preemptions += 1
        self.preemptions += 1
        self.queued[victim.id] = None

    def _schedule(self, it: Iteration) -> None:
        requests, goes_on = self.requests, Kind.RUNNING
        for id, num_tokens, kind, phase, before, recomputed, new_blocks in it.scheduled:
            request = requests[id]
            if kind is goes_on:
                if new_blocks:
                    request.blocks.extend(new_blocks)
            else:
                request.blocks = list(new_blocks)
                request.status = RequestStatus.RUNNING
                request.swapped_blocks = 0
                self.queued.pop(id, None)
                if request.first_scheduled is None:
                    request.first_scheduled = it.t_start
                    request.cached_tokens = before
            request.computed = before + num_tokens
            request.phase = phase
            if recomputed:
                request.recomputed_tokens += recomputed
            if request.reason is not None:
                request.reason, request.detail = None, ""

    def _finish(self, done: Finished, it: Iteration) -> None:
        request = self.requests[done.id]
        request.status = RequestStatus.FINISHED
        request.blocks = []
        request.swapped_blocks = 0
        request.reason, request.detail = None, ""
        request.finished_at, request.finished_step = it.t_end, it.step
        request.finish_reason, request.finish_detail = done.reason, done.detail
        if done.tail:
            request.pieces.append(done.tail)
        self.finished[done.reason] += 1
        self.queued.pop(done.id, None)
        self._done.append(done.id)
        if len(self._done) > KEEP_FINISHED:
            for id in self._done[: len(self._done) - KEEP_FINISHED]:
                del self.requests[id]
            del self._done[: len(self._done) - KEEP_FINISHED]


_ALL_FIELDS = attrgetter(*[one.name for one in fields(RequestView)])


def copy_request(request: RequestView) -> RequestView:
    """One that goes on by itself."""
    new = RequestView(*_ALL_FIELDS(request))  # a third of the time of copy.copy, and there may be thousands
    # `copy`, not `list`: what a recording has not read yet stays unread
    new.blocks = request.blocks.copy()
    new.token_ids = request.token_ids.copy()
    new.token_times = request.token_times.copy()
    new.token_steps = request.token_steps.copy()
    new.pieces = request.pieces.copy()
    return new
