"""Definitions of the metrics, on records made by hand."""

from __future__ import annotations

import json

import pytest

from engine.records import Cause, Copied, Kind, KnobChange, Preempted, Rebuilt, Rejected, Slots, Timings
from engine.request import FinishReason
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.metrics import LATENCIES, Metrics


def test_one_request_by_hand() -> None:
    metrics = Metrics(info())
    metrics.add(record(0, 1.0, 2.0, arrived=(arrived("a", 0.5),), scheduled=(scheduled("a", 4, kind=Kind.NEW),),
                       tokens=(token("a", 1, "H"),), free=6, planned=1))  # fmt: skip
    metrics.add(record(1, 2.0, 2.5, scheduled=(scheduled("a"),), tokens=(token("a", 2, "e"),), free=5))
    (row,) = metrics.add(record(2, 2.5, 4.0, scheduled=(scheduled("a"),), tokens=(token("a", 3, "y"),),
                                finished=(finished("a", tail="!"),)))  # fmt: skip
    assert row.as_dict() == {
        "id": "a", "client": "default", "priority": 0, "session": None, "after": None, "prompt_len": 4,
        "output_len": 3, "token_ids": [1, 2, 3], "text": "Hey!", "finish_reason": "length", "error": None,
        "cached_tokens": 0, "preemptions": 0, "swapped_out": 0, "swapped_blocks": 0, "recomputed_tokens": 0,
        "deadline_s": None, "deadline_met": None, "slo_met": None, "lag_s": 0.5, "queue_s": 0.5, "ttft_s": 1.5,
        "ttft_admit_s": 1.0, "requeue_s": 0.0, "tpot_s": 1.0, "itl_max_s": 1.5, "e2e_s": 3.5,
        "norm_s": round(3.5 / 3, 6),
    }  # fmt: skip
    summary = metrics.summary()
    assert summary["requests"] == {
        "planned": 1, "completed": 1, "rejected": 0, "failed": 0, "aborted": 0, "unfinished": 0,
    }  # fmt: skip
    assert summary["tokens"] == {"prompt": 4, "output": 3, "cached": 0, "recomputed": 0}
    assert (summary["iterations"], summary["preemptions"]) == (3, 0)
    assert summary["wall_s"] == 3.5  # from the planned arrival, not from the first record
    assert summary["output_tok_s"] == pytest.approx(3 / 3.5, abs=1e-6)
    assert summary["total_tok_s"] == 2.0
    assert summary["ttft_s"]["p50"] == 1.5 and summary["e2e_s"]["max"] == 3.5 and summary["tpot_s"]["mean"] == 1.0
    assert summary["itl_s"] == {"mean": 1.0, "p50": 1.0, "p90": 1.4, "p95": 1.45, "p99": None, "max": 1.5, "n": 2}
    assert summary["kv"] == {"num_blocks": 8, "peak_used": 2, "allocated": 8}
    assert summary["knobs"]["block_size"] == 4
    assert (summary["model"], summary["device"], summary["dtype"]) == ("tiny", "cpu", "float32")
    json.dumps(summary, allow_nan=False)


def test_failures_never_enter_latencies() -> None:
    metrics = Metrics(info(), planned=5)
    ids = ("done", "failed", "aborted")
    metrics.add(record(0, 0, 1, arrived=tuple(arrived(id, 0.0) for id in ids),
                       rejected=(Rejected("refused", "default", "too long"),),
                       scheduled=tuple(scheduled(id, 4, kind=Kind.NEW) for id in ids),
                       tokens=tuple(token(id) for id in ids)))  # fmt: skip
    rows = metrics.add(record(1, 1, 100, finished=(
        finished("aborted", FinishReason.ABORT),
        finished("failed", FinishReason.ERROR, detail="not a number"),
        finished("done", FinishReason.STOP))))  # fmt: skip
    summary = metrics.summary()
    assert summary["requests"] == {
        "planned": 5, "completed": 1, "rejected": 1, "failed": 1, "aborted": 1, "unfinished": 1,
    }  # fmt: skip
    assert all(summary[name]["n"] == 1 for name in ("ttft_s", "e2e_s", "queue_s"))
    assert summary["tokens"]["output"] == 3  # throughput counts every sampled token
    assert [row.as_dict()["error"] for row in rows] == [None, "not a number", None]


def test_nothing_measured_is_null_not_zero() -> None:
    summary = Metrics(info()).summary()
    empty = {"mean": None, "p50": None, "p90": None, "p95": None, "p99": None, "max": None, "n": 0}
    assert all(summary[name] == empty for name in (*LATENCIES, "itl_s"))
    rates = ("wall_s", "output_tok_s", "completed_output_tok_s", "total_tok_s", "completed_rps", "goodput_rps")
    assert all(summary[name] is None for name in (*rates, "slo_attainment", "slo", "good"))


def test_one_token_has_no_tpot() -> None:
    metrics = Metrics(info())
    (row,) = metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0),), scheduled=(scheduled("a", 4, kind=Kind.NEW),),
                                tokens=(token("a"),), finished=(finished("a"),)))  # fmt: skip
    assert row.tpot_s is None
    assert metrics.summary()["tpot_s"]["n"] == 0 and metrics.summary()["ttft_s"]["n"] == 1


def test_preemption_hits_and_knobs_are_counted() -> None:
    metrics = Metrics(info())
    metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0, 8),),
                       scheduled=(scheduled("a", 4, before=4, kind=Kind.NEW),),
                       tokens=(token("a"),)))  # fmt: skip
    metrics.add(record(1, 1, 2, preempted=(Preempted("a", "b", 1, 0, 8, 2),)))
    metrics.add(record(2, 2, 3, scheduled=(scheduled("a", 9, recomputed=5, kind=Kind.RESUMED),), tokens=(token("a"),),
                       knobs=(KnobChange("max_num_seqs", 16, 2, 1),)))  # fmt: skip
    summary = metrics.summary()
    assert summary["tokens"] == {"prompt": 8, "output": 2, "cached": 4, "recomputed": 5}
    assert summary["preemptions"] == 1
    assert summary["knobs"]["max_num_seqs"] == 2
    assert metrics.live["a"].preemptions == 1


def test_what_preemptions_cost() -> None:
    metrics = Metrics(info())
    both = (arrived("a", 0.0, 8), arrived("b", 0.0))
    metrics.add(record(0, 0, 1, arrived=both, scheduled=(scheduled("a", 8, kind=Kind.NEW),), tokens=(token("a"),)))
    metrics.add(record(1, 1, 2, preempted=(Preempted("a", "b", 1, 0, 8, 2),)))
    metrics.add(record(2, 2, 3, scheduled=(scheduled("a", 9, recomputed=8, kind=Kind.RESUMED),
                                           scheduled("b", 3, kind=Kind.NEW)),
                       tokens=(token("a"),), timings=Timings(forward=0.6)))  # fmt: skip
    swapped = (Preempted("a", "", 0, 0, 0, 3, Cause.SHRINK, 3), Preempted("b", "a", 1, 0, 0, 1, Cause.DISPLACED, 1))
    metrics.add(record(3, 3, 4, preempted=swapped, copied=Copied(4, 0, 4096), timings=Timings(swap=0.002)))
    metrics.add(record(4, 4, 5, scheduled=(scheduled("a", 1, before=9, kind=Kind.SWAPPED_IN),), tokens=(token("a"),),
                       copied=Copied(0, 3, 3072), timings=Timings(forward=0.5, swap=0.001)))  # fmt: skip
    summary = metrics.summary()
    assert summary["preemptions"] == 3
    assert summary["preemption"] == {
        "recompute": {"count": 1, "tokens": 8, "ms": 400.0},  # 8 of the 12 tokens of 0.6 s
        "swap": {"count": 2, "blocks_out": 4, "blocks_in": 3, "bytes": 7168, "ms": 3.0},
        "by_cause": {"blocks": 1, "shrink": 1, "displaced": 1, "rebuild": 0},
    }
    assert summary["tokens"]["cached"] == 0 and summary["tokens"]["recomputed"] == 8  # a swap is neither
    (row,) = metrics.add(record(5, 5, 6, finished=(finished("a", preemptions=2, recomputed_tokens=8),)))
    assert (row.preemptions, row.swapped_out, row.swapped_blocks) == (2, 1, 3)
    assert row.as_dict()["swapped_out"] == 1 and row.as_dict()["swapped_blocks"] == 3
    assert summary["clients"]["default"]["preemptions"] == {"suffered": 3, "caused": 2}


def test_slot_steps_add_up() -> None:
    metrics = Metrics(info())
    metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0),), slots=Slots(0, 0, 0)))
    metrics.add(record(1, 1, 2, scheduled=(scheduled("a", 4, kind=Kind.NEW),), slots=Slots(4, 1, 7)))
    metrics.add(record(2, 2, 3, scheduled=(scheduled("a"),), slots=Slots(4, 3, 0)))
    assert metrics.summary()["slot_steps"] == {"total": 8, "used": 4, "wasted": 4, "padding": 7}


def test_peak_follows_the_pool() -> None:
    """8 blocks, one of them null; 3 switched off while running; then another engine with 101 of them."""
    metrics = Metrics(info())
    metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0),), scheduled=(scheduled("a", 4, kind=Kind.NEW),), free=4))
    metrics.add(record(1, 1, 2, scheduled=(scheduled("a"),), free=2, off_blocks=3,
                       knobs=(KnobChange("num_blocks", 8, 5, 1),)))  # fmt: skip
    assert metrics.summary()["kv"] == {"num_blocks": 5, "peak_used": 3, "allocated": 8}
    metrics.add(record(2, 2, 3, scheduled=(scheduled("a"),), free=0, off_blocks=3))
    assert metrics.summary()["kv"]["peak_used"] == 4
    knobs = tuple({**info().config.values(), "num_blocks": 101, "block_size": 8}.items())
    metrics.add(record(3, 3, 4, rebuilt=Rebuilt("other", "float32", 101, 8, knobs), free=100,
                       preempted=(Preempted("a", "", 0, 0, 5, 4, Cause.REBUILD),)))  # fmt: skip
    metrics.add(record(4, 4, 5, scheduled=(scheduled("a", 6, recomputed=5, kind=Kind.RESUMED),), free=40))
    summary = metrics.summary()
    assert summary["kv"] == {"num_blocks": 101, "peak_used": 60, "allocated": 101}
    assert summary["knobs"]["block_size"] == 8 and summary["preemption"]["by_cause"]["rebuild"] == 1


def test_deadlines_in_the_rows() -> None:
    metrics = Metrics(info())
    ids = ("early", "late", "never", "free")
    limits = (1.0, 1.5, 9.0, None)
    metrics.add(record(0, 0, 1, arrived=tuple(arrived(id, 0.0, deadline=limit) for id, limit in zip(ids, limits,
                       strict=True)), scheduled=tuple(scheduled(id, 4, kind=Kind.NEW) for id in ids),
                       tokens=(token("early"),)))  # fmt: skip
    ends = (finished("never", FinishReason.ABORT), *(finished(id) for id in ("early", "late", "free")))
    rows = metrics.add(record(1, 1, 2, scheduled=(scheduled("late"), scheduled("free")),
                              tokens=(token("late"), token("free")), finished=ends))  # fmt: skip
    told = {row.id: (row.as_dict()["deadline_s"], row.as_dict()["deadline_met"]) for row in rows}
    assert told == {"early": (1.0, True), "late": (1.5, False), "never": (9.0, False), "free": (None, None)}
    assert metrics.summary()["clients"]["default"]["deadlines"] == {"met": 1, "missed": 2, "attainment": 0.333333}


def test_starvation_names_the_request() -> None:
    metrics = Metrics(info())
    assert metrics.summary()["starvation"] == {"seconds": None, "client": None, "id": None}
    metrics.add(record(0, 3, 4, arrived=(arrived("a", 1.0),)))
    assert metrics.summary()["starvation"] == {"seconds": 3.0, "client": "default", "id": "a"}


def test_a_second_request_of_the_same_id_is_refused_and_the_first_goes_on() -> None:
    metrics = Metrics(info())
    metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0),), scheduled=(scheduled("a", 4, kind=Kind.NEW),)))
    (row,) = metrics.add(record(1, 1, 2, rejected=(Rejected("a", "default", "already here"),)))
    assert row.finish_reason == "rejected"
    (row,) = metrics.add(record(2, 2, 3, scheduled=(scheduled("a"),), tokens=(token("a"),), finished=(finished("a"),)))
    assert row.finish_reason == "length" and metrics.planned == metrics.ended == 2


def test_refusal_of_an_unseen_request_is_a_row() -> None:
    (row,) = Metrics(info()).add(record(0, 0, 0, rejected=(Rejected("a", "bob", "needs 9 blocks, has 7"),)))
    assert row.as_dict()["finish_reason"] == "rejected" and row.as_dict()["error"] == "needs 9 blocks, has 7"
    assert row.as_dict()["ttft_s"] is None and row.client == "bob"
