"""Metrics of a run, read off the stream of records and nothing else.

Definitions (all times are seconds on the engine's clock):

- TTFT: first sampled token minus *planned* arrival, so that a stalled engine cannot hide its queue.
- TPOT of a request: (last token - first token) / (output tokens - 1); it has none below 2 tokens.
- ITL: gaps between neighbouring tokens of a request, pooled over all requests.
- E2E: last token minus planned arrival. Queue: start of the first iteration that ran it minus planned arrival.
- Percentiles: linear interpolation between the two nearest values.

Invariant: latencies hold completed requests only (finished by length, EOS or stop); failed, aborted and rejected ones
are counted and never enter them. What was not measured is null, never 0.
Memory: two floats per completed request and 8 bytes per gap; a request's own row is handed out when it ends.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from engine.host import EngineInfo
from engine.records import Finished, Iteration
from engine.request import FinishReason

COMPLETED = (FinishReason.LENGTH, FinishReason.STOP)


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
    recomputed_tokens: int = 0
    first_scheduled: float | None = None
    times: array[float] = field(default_factory=lambda: array("d"))
    """When each token was sampled."""

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def queue_s(self) -> float | None:
        return _minus(self.first_scheduled, self.arrival)

    @property
    def ttft_s(self) -> float | None:
        return _minus(self.times[0], self.arrival) if self.times else None

    @property
    def e2e_s(self) -> float | None:
        return _minus(self.times[-1], self.arrival) if self.times else None

    @property
    def tpot_s(self) -> float | None:
        return (self.times[-1] - self.times[0]) / (len(self.times) - 1) if len(self.times) > 1 else None

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
            "queue_s": _round(self.queue_s),
            "ttft_s": _round(self.ttft_s),
            "tpot_s": _round(self.tpot_s),
            "e2e_s": _round(self.e2e_s),
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
        self.preemptions = 0
        self.peak_used = 0
        self.knobs = info.config.values()
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
        for change in it.knobs:
            self.knobs[change.name] = change.new
        for new in it.arrived:
            self._seen += 1
            self.live[new.id] = RequestRow(new.id, new.client, len(new.prompt_ids), new.arrival)
            self._start = new.arrival if self._start is None else min(self._start, new.arrival)
        for refused in it.rejected:
            row = self.live.pop(refused.id, None)
            if row is None:
                self._seen += 1
                row = RequestRow(refused.id, refused.client, None)
            row.finish_reason, row.detail = "rejected", refused.reason
            self.counts["rejected"] += 1
            ended.append(row)
        for victim in it.preempted:
            self.live[victim.id].preemptions += 1
        self.preemptions += len(it.preempted)
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
        if it.executed:
            self.iterations += 1
            free = min(it.free_blocks_mid, it.free_blocks)
            self.peak_used = max(self.peak_used, self.info.config.usable_blocks - free)
        self._still_planned = it.planned
        self.fault = it.fault or self.fault
        return ended

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
        return _minus(self._end, self._start)

    def summary(self) -> dict[str, Any]:
        """The object `--json` prints.

        `requests`: `unfinished` is what was planned and has not ended (an interrupted run). `tokens`: `prompt` counts
        prompts that were read to their end, cached tokens included; `output` every sampled token, whatever became of
        its request; `cached` prompt tokens taken from the prefix cache at first admission; `recomputed` tokens computed
        again after a preemption. `output_tok_s` and `total_tok_s` (prompt + output) are over `wall_s`. `kv.num_blocks`
        includes the null block, `peak_used` never does.
        """
        wall = self.wall_s
        total = self.prompt_tokens + self.output_tokens
        planned = self.planned
        return {
            "requests": {"planned": planned, **self.counts, "unfinished": planned - self.ended},
            "iterations": self.iterations,
            "tokens": {
                "prompt": self.prompt_tokens,
                "output": self.output_tokens,
                "cached": self.cached_tokens,
                "recomputed": self.recomputed_tokens,
            },
            "preemptions": self.preemptions,
            "wall_s": _round(wall),
            "output_tok_s": _round(self.output_tokens / wall) if wall else None,
            "total_tok_s": _round(total / wall) if wall else None,
            "queue_s": distribution(self._queue),
            "ttft_s": distribution(self._ttft),
            "tpot_s": distribution(self._tpot),
            "itl_s": distribution(self._itl),
            "e2e_s": distribution(self._e2e),
            "kv": {"num_blocks": self.knobs["num_blocks"], "peak_used": self.peak_used},
            "knobs": dict(self.knobs),
            "model": self.info.model,
            "device": self.info.device,
            "dtype": self.info.dtype,
        }


def distribution(values: array[float]) -> dict[str, float | int | None]:
    """mean, p50, p90, p95, p99 (linear interpolation) and n; all but n are None when there is nothing."""
    names = ("p50", "p90", "p95", "p99")
    if not values:
        return {"mean": None, **dict.fromkeys(names), "n": 0}
    data = np.asarray(values)
    points = np.percentile(data, [50, 90, 95, 99])
    return {
        "mean": _round(float(data.mean())),
        **{name: _round(float(point)) for name, point in zip(names, points, strict=True)},
        "n": len(values),
    }


def _minus(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier


def _round(value: float | None) -> float | None:
    """Microseconds: what is below is noise of the clock."""
    return None if value is None else round(value, 6)
