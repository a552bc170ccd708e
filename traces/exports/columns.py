"""The columns of requests and of iterations: name, type, unit, meaning and where the value is found. One list for every
format. Null means: did not happen, or is not known.

`python -m traces.exports.columns` prints the tables of docs/exports.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from engine.records import Iteration, Phase
from traces.definitions import DEFINITIONS
from traces.exports.lives import Doing, Life, Lives

Value = int | float | str | bool | None
T = TypeVar("T")


class Type(StrEnum):
    INT = "int64"
    FLOAT = "float64"
    TEXT = "string"
    BOOL = "bool"


class Column(NamedTuple, Generic[T]):
    name: str
    type: Type
    unit: str
    """"" for names and reasons; s: seconds (of the engine's clock where it is a moment)."""
    doc: str
    get: Callable[[T], Value]


class Step(NamedTuple):
    """A record with what goes beyond it."""

    it: Iteration
    lives: Lives


def _seconds(value: float | None) -> float | None:
    """Whole nanoseconds: what is below is noise of the subtraction."""
    return None if value is None else round(value, 9)


def _float(name: str, doc: str, get: Callable[[T], float | None]) -> Column[T]:
    return Column(name, Type.FLOAT, "s", doc, lambda row: _seconds(get(row)))


def _int(name: str, unit: str, doc: str, get: Callable[[T], int | None]) -> Column[T]:
    return Column(name, Type.INT, unit, doc, get)


def _text(name: str, doc: str, get: Callable[[T], str | None]) -> Column[T]:
    return Column(name, Type.TEXT, "", doc, get)


def _request_times(*rows: tuple[str, str, Callable[[Life], float | None]]) -> tuple[Column[Life], ...]:
    return tuple([_float(*row) for row in rows])


def _step_times(*rows: tuple[str, str, Callable[[Step], float | None]]) -> tuple[Column[Step], ...]:
    return tuple([_float(*row) for row in rows])


REQUESTS: tuple[Column[Life], ...] = (
    _text("id", "the request; an id may come again after its end", lambda life: life.row.id),
    _text("client", "whose it is", lambda life: life.row.client),
    _int("priority", "", "smaller is more urgent", lambda life: life.arrived.priority if life.arrived else None),
    _text("session", "conversation or agent it is a turn of", lambda life: life.row.session),
    _text("after", "the request whose end it waited for", lambda life: life.row.after),
    *_request_times(
        ("arrival_s", "planned arrival", lambda life: life.row.arrival),
        ("first_scheduled_s", "start of the first iteration that ran it", lambda life: life.row.first_scheduled),
        ("first_token_s", "end of the iteration that gave the first token", lambda life: life.first_token),
        ("last_token_s", "end of the iteration that gave the last token", lambda life: life.last_token),
        ("ended_s", "when it ended, null while it lives", lambda life: life.ended),
    ),
    _int("prompt_len", "token", "prompt; null when it was refused", lambda life: life.row.prompt_len),
    _int("output_len", "token", "sampled tokens", lambda life: life.output_len),
    _int("max_tokens", "token", "most it could get", lambda life: life.arrived.max_tokens if life.arrived else None),
    _int(
        "cached_tokens",
        "token",
        "prompt tokens found in the prefix cache at first admission",
        lambda life: life.row.cached_tokens,
    ),
    _int("preemptions", "", "how often it was thrown out", lambda life: life.row.preemptions),
    _int("swapped", "", "how many of the preemptions kept its KV in the swap pool", lambda life: life.row.swapped_out),
    _int(
        "recomputed",
        "token",
        "tokens computed again after a preemption",
        lambda life: life.row.recomputed_tokens,
    ),
    _text(
        "finish_reason",
        "length, stop, abort, error or rejected; null while it lives",
        lambda life: life.row.finish_reason,
    ),
    _text("detail", "which stop string, which error, why refused", lambda life: life.row.detail or None),
    *_request_times(
        ("lag_s", DEFINITIONS["lag_s"].short, lambda life: life.row.lag_s),
        ("queue_s", DEFINITIONS["queue_s"].short, lambda life: life.row.queue_s),
        ("requeue_s", DEFINITIONS["requeue_s"].short, lambda life: _ran(life, life.row.requeue_s)),
        ("ttft_s", DEFINITIONS["ttft_s"].short, lambda life: life.row.ttft_s),
        ("ttft_admit_s", DEFINITIONS["ttft_admit_s"].short, lambda life: life.row.ttft_admit_s),
        ("tpot_s", DEFINITIONS["tpot_s"].short, lambda life: life.row.tpot_s),
        ("itl_max_s", DEFINITIONS["itl_max_s"].short, lambda life: life.row.itl_max_s),
        ("e2e_s", DEFINITIONS["e2e_s"].short, lambda life: life.row.e2e_s),
        ("norm_s", DEFINITIONS["norm_s"].short, lambda life: life.row.norm_s),
        ("prefill_s", "in the phase prefill", lambda life: _ran(life, life.seconds(Doing.PREFILL))),
        ("decode_s", "in the phase decode", lambda life: _ran(life, life.seconds(Doing.DECODE))),
        ("recompute_s", "in the phase recompute", lambda life: _ran(life, life.seconds(Doing.RECOMPUTE))),
        ("deadline_s", "after arrival, by which the first token should be there", lambda life: life.row.deadline_s),
    ),
    Column("deadline_met", Type.BOOL, "", "null without a deadline", lambda life: life.row.deadline_met),
    _text("sampling", "how its tokens are chosen", lambda life: life.arrived.sampling if life.arrived else None),
)

ITERATIONS: tuple[Column[Step], ...] = (
    _int("seq", "", "number of the record", lambda row: row.it.seq),
    _int("step", "", "number of the last iteration that ran the model", lambda row: row.it.step),
    *_step_times(
        ("t_start_s", "start", lambda row: row.it.t_start),
        ("t_end_s", "end", lambda row: row.it.t_end),
        ("schedule_s", "deciding what runs", lambda row: row.it.timings.schedule),
        ("build_s", "making the model's inputs", lambda row: row.it.timings.build),
        ("forward_s", "the model", lambda row: row.it.timings.forward),
        ("sample_s", "choosing tokens", lambda row: row.it.timings.sample),
        ("commit_s", "text, ends and bookkeeping", lambda row: row.it.timings.commit),
        ("swap_s", "copying KV to the swap pool and back", lambda row: row.it.timings.swap),
    ),
    _int("budget", "token", "most it could run", lambda row: row.it.budget),
    _int("tokens", "token", "computed", lambda row: row.it.total_tokens),
    _int("prefill_tokens", "token", "of prompts", lambda row: row.it.tokens_in(Phase.PREFILL)),
    _int("decode_tokens", "token", "of decodes", lambda row: row.it.tokens_in(Phase.DECODE)),
    _int("recompute_tokens", "token", "of the phase recompute", lambda row: row.it.tokens_in(Phase.RECOMPUTE)),
    _int(
        "recomputed", "token", "computed before a preemption", lambda row: sum(s.recomputed for s in row.it.scheduled)
    ),
    _int("sampled", "token", "output tokens", lambda row: len(row.it.tokens)),
    _int("scheduled", "request", "that ran", lambda row: len(row.it.scheduled)),
    _int("running", "request", "admitted, afterwards", lambda row: len(row.it.running)),
    _int("waiting", "request", "in the queue, afterwards", lambda row: row.it.num_waiting),
    _int("swapped", "request", "swapped out, afterwards", lambda row: len(row.it.swapped)),
    _int("planned", "request", "known but not yet arrived", lambda row: row.it.planned),
    _int("used_blocks", "block", "KV blocks in use afterwards", lambda row: row.lives.used_blocks(row.it)),
    _int("used_blocks_mid", "block", "the most in use while it ran", lambda row: row.lives.used_blocks_mid(row.it)),
    _int("free_blocks", "block", "KV blocks free afterwards", lambda row: row.it.free_blocks),
    _int("off_blocks", "block", "allocated but left out by num_blocks", lambda row: row.it.off_blocks),
    _int("free_cpu_blocks", "block", "free in the swap pool", lambda row: row.it.free_cpu_blocks),
    _int("arrived", "request", "that came", lambda row: len(row.it.arrived)),
    _int("rejected", "request", "that were refused", lambda row: len(row.it.rejected)),
    _int("preempted", "request", "thrown out", lambda row: len(row.it.preempted)),
    _int("finished", "request", "that ended", lambda row: len(row.it.finished)),
    _text("limit", "what bound it", lambda row: str(row.it.limit)),
    _text("blocked_id", "head of the queue, if it could not come in", lambda row: _blocked(row, "id")),
    _text("blocked_reason", "why it could not", lambda row: _blocked(row, "reason")),
    _int("prefix_queries", "token", "looked up in the prefix cache", lambda row: row.it.prefix.queries),
    _int("prefix_hits", "token", "found there", lambda row: row.it.prefix.hits),
    _int("out_blocks", "block", "copied to the swap pool", lambda row: row.it.copied.out_blocks),
    _int("in_blocks", "block", "copied back", lambda row: row.it.copied.in_blocks),
    _int("copied_bytes", "byte", "copied either way", lambda row: row.it.copied.num_bytes),
    _int("slots", "request", "batch slots", lambda row: row.it.slots.total),
    _int("slots_used", "request", "of them gave a token", lambda row: row.it.slots.used),
    _int("padding", "token", "a padded batch would add", lambda row: row.it.slots.padding),
    _int("knob_version", "", "grows with every change", lambda row: row.it.knob_version),
    _text("knobs", "changes before it: name old -> new; ...", lambda row: _knobs(row.it)),
    _text("storm", "cause of the preemption storm that rages", lambda row: row.it.storm or None),
    Column("paused", Type.BOOL, "", "the engine was paused", lambda row: row.it.paused),
    _text("notices", "lines for people, joined by ;", lambda row: "; ".join(row.it.notices) or None),
)


def _ran(life: Life, seconds: float) -> float | None:
    """Null, not 0, for one that never ran."""
    return None if life.row.first_scheduled is None else seconds


def _blocked(row: Step, field: str) -> str | None:
    return None if row.it.blocked is None else str(getattr(row.it.blocked, field))


def _knobs(it: Iteration) -> str | None:
    return "; ".join(f"{change.name} {change.old} -> {change.new}" for change in it.knobs) or None


def markdown(columns: Sequence[Column[T]]) -> str:
    """The table as it stands in docs/exports.md."""
    rows = [f"| `{c.name}` | {c.type} | {c.unit or '-'} | {c.doc} |" for c in columns]
    return "\n".join(("| column | type | unit | meaning |", "|---|---|---|---|", *rows))


if __name__ == "__main__":
    print(markdown(REQUESTS), markdown(ITERATIONS), sep="\n\n")
