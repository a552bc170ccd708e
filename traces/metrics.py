"""Metrics of a run, read off the stream of records and nothing else.

Definitions (all times are seconds on the engine's clock):

- TTFT: first sampled token minus *planned* arrival, so that a stalled engine cannot hide its queue.
- TPOT of a request: (last token - first token) / (output tokens - 1); it has none below 2 tokens.
- ITL: gaps between neighbouring tokens of a request, pooled over all requests.
- E2E: last token minus planned arrival. Queue: start of the first iteration that ran it minus planned arrival.
- Percentiles: linear interpolation between the two nearest values.

Invariant: latencies hold completed requests only (finished by length, EOS or stop); failed, aborted and rejected ones
are counted and never enter them. What was not measured is null, never 0.
What each client got, and how fairly, is in clients.py; it is part of the summary.
Memory: four floats per completed request and 8 bytes per gap, and as much again for the clients; a request's own row
is handed out when it ends.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from engine.host import EngineInfo
from engine.records import Cause, Copied, Finished, Iteration, Slots
from engine.request import FinishReason
from traces.clients import ClientAccounts
from traces.stats import COMPLETED, distribution, micro, minus

__all__ = ["Metrics", "RequestRow", "distribution"]


@dataclass(slots=True)
class RequestRow:
    """How one request went. Times are None until they happened."""

    id: str
    client: str
    prompt_len: int | None
    """None for a request that was refused before its prompt was seen."""
    arrival: float | None = None
    """Planned, on the engine's clock."""
    token_ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    finish_reason: str | None = None
    """length | stop | abort | error | rejected."""
    detail: str = ""
    """Which stop string, which error, why refused."""
    cached_tokens: int = 0
    preemptions: int = 0
    swapped_out: int = 0
    """How many of the preemptions kept its KV in the swap pool."""
    swapped_blocks: int = 0
    """Blocks copied out, all times together."""
    recomputed_tokens: int = 0
    deadline_s: float | None = None
    """Seconds after arrival by which the first token should be there."""
    first_scheduled: float | None = None
    times: array[float] = field(default_factory=lambda: array("d"))
    """When each token was sampled."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def queue_s(self) -> float | None:
        return minus(self.first_scheduled, self.arrival)

    @property
    def ttft_s(self) -> float | None:
        return minus(self.times[0], self.arrival) if self.times else None

    @property
    def e2e_s(self) -> float | None:
        return minus(self.times[-1], self.arrival) if self.times else None

    @property
    def tpot_s(self) -> float | None:
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1) if len(self.times) > 1 else None

    @property
    def deadline_met(self) -> bool | None:
        """None without a deadline. A request that ended without a first token has missed it."""
        if self.deadline_s is None:
            return None
        return self.ttft_s is not None and self.ttft_s <= self.deadline_s

    def as_dict(self) -> dict[str, Any]:
        """The line `--out` writes."""
        return {
            "id": self.id,
            "client": self.client,
            "prompt_len": self.prompt_len,
            "token_ids": self.token_ids,
            "text": self.text,
            "finish_reason": self.finish_reason,
            "error": self.detail if self.finish_reason in ("rejected", FinishReason.ERROR) else None,
            "cached_tokens": self.cached_tokens,
            "preemptions": self.preemptions,
            "swapped_out": self.swapped_out,
            "swapped_blocks": self.swapped_blocks,
            "deadline_s": self.deadline_s,
            "deadline_met": self.deadline_met,
            "queue_s": micro(self.queue_s),
            "ttft_s": micro(self.ttft_s),
            "tpot_s": micro(self.tpot_s),
            "e2e_s": micro(self.e2e_s),
        }


class Metrics:
    """Feed it every record in order with `add`; read `summary` at any time."""

    def __init__(self, info: EngineInfo, planned: int = 0) -> None:
        """planned: requests handed to the engine in advance; ones that come later are counted on top."""
        self.info = info
        self.live: dict[str, RequestRow] = {}
        self.iterations = 0
        self.counts = {"completed": 0, "rejected": 0, "failed": 0, "aborted": 0}
        self.prompt_tokens = self.output_tokens = self.cached_tokens = self.recomputed_tokens = 0
        self.preemptions = dict.fromkeys(Cause, 0)
        self.swap_outs = 0
        """Preemptions that kept the KV."""
        self.recompute_s = self.swap_s = 0.0
        self.copied = Copied()
        self.slots = Slots()
        self.allocated = info.config.allocated_blocks or info.config.num_blocks
        """KV blocks there is memory for, the null block included."""
        self.peak_used = 0
        self.knobs = info.config.values()
        self.clients = ClientAccounts(self.knobs)
        self.fault: str | None = None
        self._given = planned
        self._seen = 0
        self._still_planned = 0
        self._start: float | None = None
        self._end: float | None = None
        self._ttft, self._tpot, self._itl, self._e2e, self._queue = (array("d") for _ in range(5))

    @property
    def planned(self) -> int:
        """Requests asked for: arrived, refused, and those whose time has not come."""
        return max(self._given, self._seen + self._still_planned)

    @property
    def ended(self) -> int:
        return sum(self.counts.values())

    def add(self, it: Iteration) -> list[RequestRow]:
        """Fold one record in. Returns the rows of the requests that ended with it."""
        ended: list[RequestRow] = []
        self.clients.add(it)
        if it.rebuilt is not None:
            self.knobs.update(it.rebuilt.knobs)
            self.allocated = it.rebuilt.num_blocks
            for id, prompt_ids in it.rebuilt.prompts:
                self.live[id].prompt_len = len(prompt_ids)
        for change in it.knobs:
            self.knobs[change.name] = change.new
        for new in it.arrived:
            self._seen += 1
            self.live[new.id] = RequestRow(new.id, new.client, len(new.prompt_ids), new.arrival)
            self.live[new.id].deadline_s = new.deadline
            self._start = new.arrival if self._start is None else min(self._start, new.arrival)
        for refused in it.rejected:
            self._seen += 1
            row = RequestRow(refused.id, refused.client, None)
            row.finish_reason, row.detail = "rejected", refused.reason
            self.counts["rejected"] += 1
            ended.append(row)
        for victim in it.preempted:
            row = self.live[victim.id]
            row.preemptions += 1
            self.preemptions[victim.cause] += 1
            if victim.swapped_blocks:
                row.swapped_out += 1
                row.swapped_blocks += victim.swapped_blocks
                self.swap_outs += 1
        for item in it.scheduled:
            row = self.live[item.id]
            row.recomputed_tokens += item.recomputed
            self.recomputed_tokens += item.recomputed
            if row.first_scheduled is None:
                row.first_scheduled = it.t_start
                row.cached_tokens = item.computed_before
                self.cached_tokens += item.computed_before
        for token in it.tokens:
            row = self.live[token.id]
            if not row.times:
                self.prompt_tokens += row.prompt_len or 0
            row.token_ids.append(token.token_id)
            row.pieces.append(token.text)
            row.times.append(it.t_end)
        self.output_tokens += len(it.tokens)
        ended.extend(self._finish(done) for done in it.finished)
        if it.executed or it.arrived:
            self._end = it.t_end
        self.swap_s += it.timings.swap
        self.copied = Copied(*map(sum, zip(self.copied, it.copied, strict=True)))
        if it.executed:
            self._execute(it)
        self._still_planned = it.planned
        self.fault = it.fault or self.fault
        return ended

    def _execute(self, it: Iteration) -> None:
        self.iterations += 1
        self.slots = Slots(*map(sum, zip(self.slots, it.slots, strict=True)))
        recomputed = sum(item.recomputed for item in it.scheduled)
        if recomputed:
            self.recompute_s += it.timings.forward * recomputed / it.total_tokens
        free = min(it.free_blocks_mid, it.free_blocks)
        self.peak_used = max(self.peak_used, self.allocated - 1 - it.off_blocks - free)

    def _finish(self, done: Finished) -> RequestRow:
        row = self.live.pop(done.id)
        row.finish_reason, row.detail = str(done.reason), done.detail
        row.preemptions, row.cached_tokens = done.preemptions, done.cached_tokens
        if done.tail:
            row.pieces.append(done.tail)
        if done.reason not in COMPLETED:
            self.counts["aborted" if done.reason is FinishReason.ABORT else "failed"] += 1
            return row
        self.counts["completed"] += 1
        for pool, value in (
            (self._ttft, row.ttft_s),
            (self._tpot, row.tpot_s),
            (self._e2e, row.e2e_s),
            (self._queue, row.queue_s),
        ):
            if value is not None:
                pool.append(value)
        self._itl.extend(later - earlier for earlier, later in pairwise(row.times))
        return row

    @property
    def wall_s(self) -> float | None:
        """From the first planned arrival to the end of the last iteration."""
        return minus(self._end, self._start)

    def summary(self) -> dict[str, Any]:
        """The object `--json` prints.

        `requests`: `unfinished` is what was planned and has not ended (an interrupted run). `tokens`: `prompt` counts
        prompts that were read to their end, cached tokens included; `output` every sampled token, whatever became of
        its request; `cached` prompt tokens taken from the prefix cache at first admission; `recomputed` tokens computed
        again after a preemption. `output_tok_s` and `total_tok_s` (prompt + output) are over `wall_s`.

        `preemption`: each one is counted under `recompute` or under `swap`, and by its cause. `recompute.ms` is an
        estimate: forward time times the recomputed share of the iteration's tokens; `swap.ms` was measured. Blocks that
        are still in the prefix cache are not copied back, so `blocks_in` may be below `blocks_out`.
        `slot_steps` adds up `Iteration.slots`. `kv.num_blocks` is the knob, null block included; `peak_used` never
        includes it, nor blocks switched off; `allocated` is what there is memory for now. `starvation` is the longest
        stay in the queue and whose; clients.py defines it, `clients` and `fairness`.
        """
        wall = self.wall_s
        total = self.prompt_tokens + self.output_tokens
        planned = self.planned
        preemptions = sum(self.preemptions.values())
        starved = self.clients.starvation()
        total_slots, used_slots, padding = self.slots
        return {
            "requests": {"planned": planned, **self.counts, "unfinished": planned - self.ended},
            "iterations": self.iterations,
            "tokens": {
                "prompt": self.prompt_tokens,
                "output": self.output_tokens,
                "cached": self.cached_tokens,
                "recomputed": self.recomputed_tokens,
            },
            "preemptions": preemptions,
            "preemption": {
                "recompute": {
                    "count": preemptions - self.swap_outs,
                    "tokens": self.recomputed_tokens,
                    "ms": micro(self.recompute_s * 1000),
                },
                "swap": {
                    "count": self.swap_outs,
                    "blocks_out": self.copied.out_blocks,
                    "blocks_in": self.copied.in_blocks,
                    "bytes": self.copied.num_bytes,
                    "ms": micro(self.swap_s * 1000),
                },
                "by_cause": {str(cause): count for cause, count in self.preemptions.items()},
            },
            "slot_steps": {
                "total": total_slots,
                "used": used_slots,
                "wasted": total_slots - used_slots,
                "padding": padding,
            },
            "wall_s": micro(wall),
            "output_tok_s": micro(self.output_tokens / wall) if wall else None,
            "total_tok_s": micro(total / wall) if wall else None,
            "queue_s": distribution(self._queue),
            "ttft_s": distribution(self._ttft),
            "tpot_s": distribution(self._tpot),
            "itl_s": distribution(self._itl),
            "e2e_s": distribution(self._e2e),
            "kv": {"num_blocks": self.knobs["num_blocks"], "peak_used": self.peak_used, "allocated": self.allocated},
            "starvation": {
                "seconds": micro(starved.seconds) if starved else None,
                "client": starved.client if starved else None,
                "id": starved.id if starved else None,
            },
            "clients": self.clients.summary(),
            "fairness": self.clients.fairness(),
            "knobs": dict(self.knobs),
            "model": self.info.model,
            "device": self.info.device,
            "dtype": self.info.dtype,
        }
