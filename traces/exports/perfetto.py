"""Chrome Trace Event JSON: opens in Perfetto (ui.perfetto.dev) and in chrome://tracing.

- Process 1, the engine: thread 1 has one slice for each record (`step N`, or `between steps` for one that ran
  nothing), in it its parts; thread 2 the knob changes, thread 3 what preempted whom. Counters: KV blocks, queues,
  tokens by phase.
- Process 2, the requests: each is an async track, since requests overlap. An outer event from arrival to end, in it
  its phases one after another, and an instant for its first token and each preemption.

Times are microseconds with three places, so whole nanoseconds of the engine's clock. The parts of an iteration are
laid end to end in the order in which they run: their lengths were measured, the gaps between them were not.
Invariant: slices of a thread nest, every `b` has its `e` (what has not ended is cut at the last record and marked
`unfinished`), counters are numbers. Events are written as they become known, so they are not sorted by time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import IO, Any

from engine.host import EngineInfo
from engine.records import Iteration, Phase
from traces.exports.lives import Doing, Life, Lives
from traces.exports.run import Job, run_exports
from traces.exports.target import Out

ENGINE, REQUESTS = 1, 2
"""Process numbers."""
STEPS, KNOBS, PREEMPTIONS = 1, 2, 3
"""Threads of the engine."""
PARTS = ("schedule", "swap", "build", "forward", "sample", "commit")
"""In the order in which an iteration does them."""
IDLE_NS = 1_000_000
"""Between two steps further apart than this the token counter falls to zero."""
CATEGORY = "request"
NAMES: tuple[tuple[int, int, str, dict[str, Any]], ...] = (
    (ENGINE, 0, "process_name", {"name": "engine"}),
    (ENGINE, 0, "process_sort_index", {"sort_index": 1}),
    (REQUESTS, 0, "process_name", {"name": "requests"}),
    (REQUESTS, 0, "process_sort_index", {"sort_index": 2}),
    (ENGINE, STEPS, "thread_name", {"name": "steps"}),
    (ENGINE, STEPS, "thread_sort_index", {"sort_index": 1}),
    (ENGINE, KNOBS, "thread_name", {"name": "knobs"}),
    (ENGINE, KNOBS, "thread_sort_index", {"sort_index": 2}),
    (ENGINE, PREEMPTIONS, "thread_name", {"name": "preemptions"}),
    (ENGINE, PREEMPTIONS, "thread_sort_index", {"sort_index": 3}),
)


def write_perfetto(info: EngineInfo, iterations: Iterable[Iteration], out: Out, *, force: bool = False) -> None:
    """Write the trace. A name ending in .gz is compressed; Perfetto opens it like that."""
    run_exports(info, iterations, [Job(PerfettoTrace, out)], force=force)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def us(nanoseconds: int) -> float:
    whole, rest = divmod(nanoseconds, 1000)
    return nanoseconds / 1000 if rest else whole


class PerfettoTrace:
    """See `Export`. `file` takes text."""

    def __init__(self, info: EngineInfo, file: IO[str]) -> None:
        self._write = file.write
        self._comma = ""
        self._counters: dict[str, dict[str, int]] = {}
        self._idle_from: int | None = None
        head = {
            "model": info.model,
            "device": info.device,
            "dtype": info.dtype,
            "threads": info.threads,
            "parameters": info.parameters,
            "kv_bytes": info.kv_bytes,
            "knobs": info.config.values(),
        }
        self._write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(head)},"traceEvents":[\n')
        for pid, tid, name, args in NAMES:
            self._event("M", name, pid, tid, 0, args=args)

    def add(self, it: Iteration, known: Iteration, lives: Lives) -> None:
        self._step(it, lives)
        for change in it.knobs:
            name = f"{change.name} {_value(change.old)} → {_value(change.new)}"
            args = {"name": change.name, "old": change.old, "new": change.new, "version": change.version}
            self._event("i", name, ENGINE, KNOBS, ns(it.t_start), s="g", args=args)
        if it.rebuilt is not None:
            new = it.rebuilt
            args = {"model": new.model, "dtype": new.dtype, "num_blocks": new.num_blocks, "block_size": new.block_size}
            self._event("i", f"engine built anew: {new.model}", ENGINE, KNOBS, ns(it.t_start), s="g", args=args)
        if it.fault is not None:
            self._event("i", "fault", ENGINE, STEPS, ns(it.t_end), s="g", args={"traceback": it.fault})
        for victim in it.preempted:
            args = victim._asdict()
            by = f" by {victim.by}" if victim.by else ""
            self._event("i", f"{victim.id} {victim.cause}{by}", ENGINE, PREEMPTIONS, ns(it.t_start), s="t", args=args)
        self._requests(lives)
        self._count(it, lives)

    def finish(self, lives: Lives) -> None:
        for life in lives.rest():
            span = life.spans[-1]
            self._async("e", span.doing, life, ns(span.end))
            self._async("e", life.row.id, life, ns(span.end), {"unfinished": True, "output_len": life.output_len})
        if self._idle_from is not None:
            self._counter("tokens", self._idle_from, dict.fromkeys(Phase, 0))
        self._write("\n]}\n")

    # ---- the engine -------------------------------------------------------------------------------

    def _step(self, it: Iteration, lives: Lives) -> None:
        start, end = ns(it.t_start), ns(it.t_end)
        args: dict[str, Any] = {
            "seq": it.seq,
            "tokens": it.total_tokens,
            "budget": it.budget,
            "requests": len(it.scheduled),
            "sampled": len(it.tokens),
            "running": len(it.running),
            "waiting": it.num_waiting,
            "kv": lives.used_blocks(it),
            "limit": it.limit,
            "knob_version": it.knob_version,
        }
        for key, value in (
            ("preempted", [victim.id for victim in it.preempted]),
            ("finished", [done.id for done in it.finished]),
            ("rejected", [refused.id for refused in it.rejected]),
            ("blocked", it.blocked.detail if it.blocked else ""),
            ("storm", it.storm),
            ("notices", list(it.notices)),
        ):
            if value:
                args[key] = value
        name = f"step {it.step}" if it.executed else "between steps"
        self._event("X", name, ENGINE, STEPS, start, dur=us(end - start), args=args)
        for part in PARTS:
            length = min(ns(getattr(it.timings, part)), end - start)
            if length > 0:
                self._event("X", part, ENGINE, STEPS, start, dur=us(length))
                start += length

    def _count(self, it: Iteration, lives: Lives) -> None:
        start, end = ns(it.t_start), ns(it.t_end)
        if it.executed:
            if self._idle_from is not None and start - self._idle_from > IDLE_NS:
                self._counter("tokens", self._idle_from, dict.fromkeys(Phase, 0))
            self._counter("tokens", start, {phase: it.tokens_in(phase) for phase in Phase})
            self._idle_from = end
            self._counter("kv_blocks_used", start, {"blocks": lives.used_blocks_mid(it)})
        self._counter("kv_blocks_used", end, {"blocks": lives.used_blocks(it)})
        self._counter("running", end, {"requests": len(it.running)})
        self._counter("waiting", end, {"requests": it.num_waiting})
        if it.swapped or "swapped" in self._counters:
            self._counter("swapped", end, {"requests": len(it.swapped)})

    def _counter(self, name: str, at: int, values: dict[Any, int]) -> None:
        """A counter keeps its value until the next event, so one that did not move needs none."""
        if self._counters.get(name) != values:
            self._counters[name] = values
            self._event("C", name, ENGINE, 0, at, args=values)

    # ---- the requests -----------------------------------------------------------------------------

    def _requests(self, lives: Lives) -> None:
        for life in lives.ended:
            if life.arrived is None:
                args = {"id": life.row.id, "client": life.row.client, "why": life.row.detail}
                self._event("i", f"rejected {life.row.id}", REQUESTS, 0, ns(life.began), s="p", args=args)
        for life, old, new, at in lives.changes:
            when = ns(at)
            if old is None:
                self._async("b", life.row.id, life, when, _about(life))
            else:
                self._async("e", old, life, when)
            if new in (Doing.PREEMPTED, Doing.SWAPPED) and life.events and life.events[-1][0] == at:
                self._async("n", "preempted", life, when, life.events[-1][1]._asdict())
            if new is Doing.DECODE and old is not Doing.DECODE and life.first_token == at:
                self._async("n", "first token", life, when)
            if new is not None:
                self._async("b", new, life, when)
            else:
                self._async("e", life.row.id, life, when, _end(life))

    # ---- writing ----------------------------------------------------------------------------------

    def _async(self, ph: str, name: str, life: Life, at: int, args: dict[str, Any] | None = None) -> None:
        self._event(ph, name, REQUESTS, 0, at, cat=CATEGORY, id=f"0x{life.serial:x}", args=args or {})

    def _event(self, ph: str, name: str, pid: int, tid: int, at: int, **more: Any) -> None:
        event = {"ph": ph, "name": name, "pid": pid, "tid": tid, "ts": us(at), **more}
        self._write(self._comma + json.dumps(event, separators=(",", ":")))
        self._comma = ",\n"


def _about(life: Life) -> dict[str, Any]:
    new = life.arrived
    assert new is not None
    about = {
        "id": new.id,
        "client": new.client,
        "priority": new.priority,
        "session": new.session,
        "after": new.after,
        "prompt_len": len(new.prompt_ids),
        "max_tokens": new.max_tokens,
        "sampling": new.sampling,
        "deadline_s": new.deadline,
    }
    return {name: value for name, value in about.items() if value is not None}


def _end(life: Life) -> dict[str, Any]:
    row = life.row
    return {
        "finish_reason": row.finish_reason,
        "detail": row.detail,
        "output_len": life.output_len,
        "cached_tokens": row.cached_tokens,
        "preemptions": row.preemptions,
        "recomputed_tokens": row.recomputed_tokens,
    }


def _value(value: object) -> str:
    return "none" if value is None else str(value)
