"""`Lives`: what every request is doing, followed through the records. All exports of requests read it.

A life is cut into phases without gaps, from the planned arrival to the end:

- queued: until the start of the first iteration that runs it;
- prefill: until its first token is there (what was computed before a preemption is `recompute`);
- decode: from its first token on;
- preempted, swapped: from the start of the iteration that threw it out to the start of the one that runs it again;
- recompute: from there until it is where it was.

It ends with the iteration that ended it; one that did not run in it (aborted, cut off by a rebuild) when that began.
Latencies are those of `RequestRow`. Memory: the requests that are alive.
Records may begin in the middle of a run. Requests that were there already are strangers: nobody knows how long they
had waited, so they are counted and left out.
Omission: a request that was aborted before its planned arrival is queued for no time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from engine.host import EngineInfo
from engine.records import Arrived, Iteration, Kind, Phase, Preempted, Scheduled
from engine.request import FinishReason
from traces.request_row import RequestRow
from traces.stats import minus

REJECTED = "rejected"


class Doing(StrEnum):
    QUEUED = "queued"
    PREFILL = "prefill"
    DECODE = "decode"
    PREEMPTED = "preempted"
    SWAPPED = "swapped"
    RECOMPUTE = "recompute"


class Span(NamedTuple):
    doing: Doing
    start: float
    end: float


@dataclass(slots=True, eq=False)
class Life:
    """One request. Times are engine-clock seconds, None until they happen."""

    serial: int
    """Number of the request in its run: ids may be used again, serials are not."""
    row: RequestRow
    arrived: Arrived | None
    """None when it was refused at the door."""
    began: float
    """Where its first phase starts: the planned arrival."""
    doing: Doing = Doing.QUEUED
    since: float = 0.0
    """When `doing` began."""
    spans: list[Span] = field(default_factory=list)
    """Phases that are over."""
    events: list[tuple[float, Preempted]] = field(default_factory=list)
    """When and how it was preempted."""
    ended: float | None = None

    @property
    def failed(self) -> bool:
        return self.row.finish_reason in (REJECTED, FinishReason.ERROR)

    @property
    def first_token(self) -> float | None:
        return self.row.times[0] if self.row.times else None

    @property
    def last_token(self) -> float | None:
        return self.row.times[-1] if self.row.times else None

    @property
    def output_len(self) -> int:
        return len(self.row.times)

    @property
    def prefill_s(self) -> float | None:
        """From first scheduled to the first token, as vLLM counts it."""
        return self.row.ttft_admit_s

    @property
    def decode_s(self) -> float | None:
        """From the first token to the last, preemptions included (vLLM's too)."""
        return minus(self.last_token, self.first_token)

    @property
    def inference_s(self) -> float | None:
        """From first scheduled to the last token."""
        return minus(self.last_token, self.row.first_scheduled)

    def seconds(self, *doing: Doing) -> float:
        """Spent in these phases, those that are over."""
        return sum((span.end - span.start for span in self.spans if span.doing in doing), 0.0)


class Change(NamedTuple):
    """A request went from one phase to another; None: it came, or ended."""

    life: Life
    old: Doing | None
    new: Doing | None
    at: float


class Lives:
    """Feed it every record in order with `add`; what a record changed is here until the next one."""

    def __init__(self, info: EngineInfo, *, text: bool = False) -> None:
        """text: keep the output text of live requests (`row.pieces`)."""
        self.live: dict[str, Life] = {}
        self.allocated = info.config.allocated_blocks or info.config.num_blocks
        """KV blocks there is memory for, the null block included."""
        self.start: float | None = None
        """Start of the first record, or the first planned arrival if that is earlier."""
        self.now = 0.0
        """End of the last record."""
        self.changes: list[Change] = []
        self.arrived: list[Life] = []
        self.ended: list[Life] = []
        """Rejected ones among them."""
        self.strangers = 0
        """Requests that were there before the first record."""
        self._strange: set[str] = set()
        self._whole = True
        """The records begin with the run."""
        self._text = text
        self._serial = 0

    def usable_blocks(self, it: Iteration) -> int:
        return self.allocated - 1 - it.off_blocks

    def used_blocks(self, it: Iteration) -> int:
        """After the iteration."""
        return self.usable_blocks(it) - it.free_blocks

    def used_blocks_mid(self, it: Iteration) -> int:
        """The most in the iteration: once it was scheduled, before the finished ones gave theirs back."""
        return self.usable_blocks(it) - min(it.free_blocks, it.free_blocks_mid)

    def add(self, it: Iteration) -> Iteration:
        """Fold one record in. Returns it without what strangers did: as it is, when there are none."""
        self.changes, self.arrived, self.ended = [], [], []
        if self.start is None:
            self.start = it.t_start
            self._whole = it.seq == 0
        if not self._whole:
            it = self._without_strangers(it)
        if it.rebuilt is not None:
            self.allocated = it.rebuilt.num_blocks
            for life in self.live.values():
                if life.doing is Doing.SWAPPED:  # the swap pool is gone
                    self._enter(life, Doing.PREEMPTED, it.t_start)
            for id, prompt_ids in it.rebuilt.prompts:
                self.live[id].row.prompt_len = len(prompt_ids)
        for new in it.arrived:
            self._arrive(new, it.t_start)
        for refused in it.rejected:
            row = RequestRow(refused.id, refused.client, None, finish_reason=REJECTED, detail=refused.reason)
            self._serial += 1
            life = Life(self._serial, row, None, it.t_start, since=it.t_start, ended=it.t_start)
            self.ended.append(life)
        for victim in it.preempted:
            self._preempt(self.live[victim.id], victim, it.t_start)
        for item in it.scheduled:
            self._schedule(self.live[item.id], item, it.t_start)
        for token in it.tokens:
            life = self.live[token.id]
            life.row.times.append(it.t_end)
            if self._text:
                life.row.pieces.append(token.text)
            if life.doing is not Doing.DECODE:
                self._enter(life, Doing.DECODE, it.t_end)
        ran = {item.id for item in it.scheduled} if it.finished else ()
        for done in it.finished:
            life = self.live.pop(done.id)
            row = life.row
            row.finish_reason, row.detail = str(done.reason), done.detail
            row.preemptions, row.cached_tokens = done.preemptions, done.cached_tokens
            row.resume(it.t_end if done.id in ran else it.t_start)
            if done.tail and self._text:
                row.pieces.append(done.tail)
            self._enter(life, None, it.t_end if done.id in ran else it.t_start)
            self.ended.append(life)
        self.now = it.t_end
        return it

    def _without_strangers(self, it: Iteration) -> Iteration:
        came = {new.id for new in it.arrived}
        self._strange -= came

        def known(id: str) -> bool:
            if id in came or id in self.live:
                return True
            if id not in self._strange:
                self._strange.add(id)
                self.strangers += 1
            return False

        rebuilt = it.rebuilt
        if rebuilt is not None:
            rebuilt = rebuilt._replace(prompts=tuple([one for one in rebuilt.prompts if known(one[0])]))
        return replace(
            it,
            rebuilt=rebuilt,
            preempted=tuple([victim for victim in it.preempted if known(victim.id)]),
            scheduled=tuple([item for item in it.scheduled if known(item.id)]),
            tokens=tuple([token for token in it.tokens if known(token.id)]),
            finished=tuple([done for done in it.finished if known(done.id)]),
        )

    def rest(self) -> Iterator[Life]:
        """Those that have not ended, in order of arrival, with their last phase cut at the end of the last record."""
        for life in self.live.values():
            end = max(life.since, self.now)
            life.spans.append(Span(life.doing, life.since, end))
            yield life
            life.spans.pop()

    def _arrive(self, new: Arrived, now: float) -> None:
        self._serial += 1
        row = RequestRow(
            new.id, new.client, len(new.prompt_ids), new.arrival, deadline_s=new.deadline,
            priority=new.priority, session=new.session, after=new.after, taken=now,
        )  # fmt: skip
        began = min(new.arrival, now)
        life = self.live[new.id] = Life(self._serial, row, new, began, since=began)
        self.start = min(began, now if self.start is None else self.start)
        self.arrived.append(life)
        self.changes.append(Change(life, None, Doing.QUEUED, began))

    def _preempt(self, life: Life, victim: Preempted, now: float) -> None:
        row = life.row
        row.preempt(now)
        if victim.swapped_blocks:
            row.swapped_out += 1
            row.swapped_blocks += victim.swapped_blocks
        life.events.append((now, victim))
        self._enter(life, Doing.SWAPPED if victim.swapped_blocks else Doing.PREEMPTED, now)

    def _schedule(self, life: Life, item: Scheduled, now: float) -> None:
        row = life.row
        row.recomputed_tokens += item.recomputed
        row.resume(now)
        if row.first_scheduled is None:
            row.first_scheduled, row.cached_tokens = now, item.computed_before
        if item.kind is Kind.RUNNING and life.doing is Doing.DECODE:
            return
        doing = Doing(item.phase)
        if item.phase is Phase.DECODE and not row.times:
            doing = Doing.PREFILL
        if doing is not life.doing:
            self._enter(life, doing, now)

    def _enter(self, life: Life, doing: Doing | None, at: float) -> None:
        at = max(at, life.since)
        life.spans.append(Span(life.doing, life.since, at))
        self.changes.append(Change(life, life.doing, doing, at))
        if doing is None:
            life.ended = at
        else:
            life.doing, life.since = doing, at
