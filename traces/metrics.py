"""Metrics of a run, read off the stream of records and nothing else.

What each figure means is said in definitions.py, word for word what people are shown; docs/metrics.md has the same
table. request_row.py computes a request's own times, clients.py what each client got and how fairly.

Invariant: latencies hold completed requests only (finished by length, EOS or stop). Failed, aborted, rejected and
unfinished ones are counted, by reason, and enter percentiles as +inf in a table of their own and nowhere else.
What was not measured is null, never 0.
Memory: nine floats per completed request, and about as much again for the clients; the gaps between tokens are held
in a `Pool` of fixed size. A request's own row is handed out when it ends.
"""

from __future__ import annotations

from array import array
from typing import Any

from engine.host import EngineInfo
from engine.records import Arrived, Cause, Copied, Finished, Iteration, Rejected, Slots
from engine.request import FinishReason
from traces.clients import ClientAccounts
from traces.failures import Reasons
from traces.request_row import RequestRow
from traces.slo import Slo
from traces.stats import COMPLETED, Pool, distribution, gaps, micro, minus, with_failures

__all__ = ["LATENCIES", "Metrics", "RequestRow", "distribution"]

LATENCIES = ("lag_s", "queue_s", "ttft_s", "ttft_admit_s", "requeue_s", "tpot_s", "itl_max_s", "e2e_s", "norm_s")
"""Of each completed request; the names are those of `RequestRow`'s properties and of the summary."""
WITH_FAILURES = ("ttft_s", "tpot_s", "e2e_s", "norm_s")
"""Those of which there are percentiles over all planned requests too."""


class Metrics:
    """Feed it every record in order with `add`; read `summary` at any time."""

    def __init__(self, info: EngineInfo, planned: int = 0, slo: Slo | None = None) -> None:
        """planned: requests handed to the engine in advance; ones that come later are counted on top.

        slo: what a good request has to keep; without it there is no goodput.
        """
        self.info = info
        self.live: dict[str, RequestRow] = {}
        self.iterations = 0
        self.counts = {"completed": 0, "rejected": 0, "failed": 0, "aborted": 0}
        self.reasons = Reasons()
        self.slo = slo
        self.good = 0
        """Completed requests that kept the SLO."""
        self.closed_loop = 0
        """Requests that waited for the end of another; all others arrive by a schedule of their own."""
        self.prompt_tokens = self.output_tokens = self.cached_tokens = self.recomputed_tokens = 0
        self.completed_tokens = 0
        """Output tokens of completed requests."""
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
        self.clients = ClientAccounts(self.knobs, slo=slo)
        self.fault: str | None = None
        self._given = planned
        self._seen = 0
        self._still_planned = 0
        self._start: float | None = None
        self._end: float | None = None
        self._pools = {name: array("d") for name in LATENCIES}
        self._itl = Pool()

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
            self._arrive(new, it.t_start)
        ended.extend(map(self._refuse, it.rejected))
        live = self.live
        for victim in it.preempted:
            row = live[victim.id]
            row.preempt(it.t_start)
            self.preemptions[victim.cause] += 1
            if victim.swapped_blocks:
                row.swapped_out += 1
                row.swapped_blocks += victim.swapped_blocks
                self.swap_outs += 1
        again = 0
        for item in it.scheduled:
            row = live[item.id]
            if item.recomputed:
                row.recomputed_tokens += item.recomputed
                again += item.recomputed
            if row.first_scheduled is None:
                row.first_scheduled = it.t_start
                row.cached_tokens = item.computed_before
                self.cached_tokens += item.computed_before
            elif row.preempted_at is not None:
                row.resume(it.t_start)
        now = it.t_end
        for id, token_id, text in it.tokens:
            row = live[id]
            if not row.times:
                self.prompt_tokens += row.prompt_len or 0
            row.token_ids.append(token_id)
            row.pieces.append(text)
            row.times.append(now)
        self.output_tokens += len(it.tokens)
        for done in it.finished:
            ended.append(self._finish(done, it.t_start))
        self.swap_s += it.timings.swap
        if any(it.copied):
            self.copied = Copied(*map(sum, zip(self.copied, it.copied, strict=True)))
        if it.executed:
            self._execute(it, again)
        self._still_planned = it.planned
        self.fault = it.fault or self.fault
        return ended

    def _arrive(self, new: Arrived, now: float) -> None:
        self._seen += 1
        self.closed_loop += new.after is not None
        row = self.live[new.id] = RequestRow(new.id, new.client, len(new.prompt_ids), new.arrival)
        row.deadline_s, row.priority, row.session, row.after = new.deadline, new.priority, new.session, new.after
        row.taken = now
        self._start = new.arrival if self._start is None else min(self._start, new.arrival)

    def _refuse(self, refused: Rejected) -> RequestRow:
        self._seen += 1
        row = RequestRow(refused.id, refused.client, None)
        row.finish_reason, row.detail = "rejected", refused.reason
        self._miss(row, "rejected")
        return row

    def _execute(self, it: Iteration, recomputed: int) -> None:
        self.iterations += 1
        self._end = it.t_end
        total, used, padding = self.slots
        self.slots = Slots(total + it.slots.total, used + it.slots.used, padding + it.slots.padding)
        self.recomputed_tokens += recomputed
        if recomputed:
            self.recompute_s += it.timings.forward * recomputed / it.total_tokens
        free = min(it.free_blocks_mid, it.free_blocks)
        self.peak_used = max(self.peak_used, self.allocated - 1 - it.off_blocks - free)

    def _finish(self, done: Finished, begun: float) -> RequestRow:
        """begun: when the record began; one that waited until then and ended did so at that moment."""
        row = self.live.pop(done.id)
        row.finish_reason, row.detail = str(done.reason), done.detail
        row.preemptions, row.cached_tokens = done.preemptions, done.cached_tokens
        row.resume(begun)
        if done.tail:
            row.pieces.append(done.tail)
        if done.reason not in COMPLETED:
            self._miss(row, "aborted" if done.reason is FinishReason.ABORT else "failed")
            return row
        self.counts["completed"] += 1
        self.completed_tokens += len(row.times)
        between = gaps(row.times)
        self._itl.extend(between)
        if len(between):
            self._pools["itl_max_s"].append(float(between.max()))
        for name, pool in self._pools.items():
            value = None if name == "itl_max_s" else getattr(row, name)
            if value is not None:
                pool.append(value)
        if self.slo is not None:
            row.slo_met = self.slo.met(row.ttft_s, row.tpot_s)
            self.good += row.slo_met
        return row

    def _miss(self, row: RequestRow, how: str) -> None:
        self.counts[how] += 1
        self.reasons.add(how, row.detail)
        row.slo_met = None if self.slo is None else False

    @property
    def wall_s(self) -> float | None:
        """From the first planned arrival to the end of the last iteration; 0 if all were aborted before their time."""
        wall = minus(self._end, self._start)
        return None if wall is None else max(0.0, wall)

    def summary(self) -> dict[str, Any]:
        """The object `--json` prints; definitions.py defines what is in it. Plain JSON: no infinities, no NaN.

        `with_failures` has the string "inf" where a percentile falls among requests that did not complete.
        `slo`, `good`, `goodput_rps` and `slo_attainment` are null without an SLO.

        `preemption`: each one is counted under `recompute` or under `swap`, and by its cause. `recompute.ms` is an
        estimate: forward time times the recomputed share of the iteration's tokens; `swap.ms` was measured. Blocks that
        are still in the prefix cache are not copied back, so `blocks_in` may be below `blocks_out`.
        `slot_steps` adds up `Iteration.slots`. `kv.num_blocks` is the knob, null block included; `peak_used` never
        includes it, nor blocks switched off; `allocated` is what there is memory for now. `starvation` is the longest
        stay in the queue and whose; clients.py defines it, `clients` and `fairness`.
        """
        wall = self.wall_s
        planned = self.planned
        missing = planned - self.counts["completed"]
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
            **self._rates(wall),
            **{name: distribution(pool) for name, pool in self._pools.items()},
            "itl_s": distribution(self._itl),
            "with_failures": {name: with_failures(self._pools[name], missing) for name in WITH_FAILURES},
            "failures": self.reasons.summary(),
            "arrivals": {"open_loop": self._seen - self.closed_loop, "closed_loop": self.closed_loop},
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

    def _rates(self, wall: float | None) -> dict[str, Any]:
        """Throughput by numerator, and the two goodputs. Null where there is nothing to divide, or to divide by."""

        def per_second(count: int) -> float | None:
            return micro(count / wall) if wall and count else None

        rated = self.slo is not None and self.planned > 0
        return {
            "output_tok_s": per_second(self.output_tokens),
            "completed_output_tok_s": per_second(self.completed_tokens),
            "total_tok_s": per_second(self.prompt_tokens + self.output_tokens),
            "completed_rps": per_second(self.counts["completed"]),
            "slo": self.slo.as_dict() if self.slo is not None else None,
            "good": self.good if self.slo is not None else None,
            "goodput_rps": micro(self.good / wall) if rated and wall else None,
            "slo_attainment": micro(self.good / self.planned) if rated else None,
        }
