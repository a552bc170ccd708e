"""Definitions of the metrics, on records made by hand."""

from __future__ import annotations

import json
from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.records import Kind, KnobChange, Preempted, Rejected
from engine.request import FinishReason
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.metrics import Metrics, distribution


def test_one_request_by_hand() -> None:
    metrics = Metrics(info())
    metrics.add(record(0, 1.0, 2.0, arrived=(arrived("a", 0.5),), scheduled=(scheduled("a", 4, kind=Kind.NEW),),
                       tokens=(token("a", 1, "H"),), free=6, planned=1))  # fmt: skip
    metrics.add(record(1, 2.0, 2.5, scheduled=(scheduled("a"),), tokens=(token("a", 2, "e"),), free=5))
    (row,) = metrics.add(record(2, 2.5, 4.0, scheduled=(scheduled("a"),), tokens=(token("a", 3, "y"),),
                                finished=(finished("a", tail="!"),)))  # fmt: skip
    assert row.as_dict() == {
        "id": "a", "client": "default", "prompt_len": 4, "token_ids": [1, 2, 3], "text": "Hey!",
        "finish_reason": "length",
        "error": None, "cached_tokens": 0, "preemptions": 0, "swapped_out": 0, "swapped_blocks": 0,
        "deadline_s": None, "deadline_met": None, "queue_s": 0.5, "ttft_s": 1.5, "tpot_s": 1.0, "e2e_s": 3.5,
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
    assert summary["ttft_s"]["p50"] == 1.5 and summary["e2e_s"]["p99"] == 3.5 and summary["tpot_s"]["mean"] == 1.0
    assert summary["itl_s"] == {"mean": 1.0, "p50": 1.0, "p90": 1.4, "p95": 1.45, "p99": 1.49, "n": 2}
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
    empty = {"mean": None, "p50": None, "p90": None, "p95": None, "p99": None, "n": 0}
    assert all(summary[name] == empty for name in ("queue_s", "ttft_s", "tpot_s", "itl_s", "e2e_s"))
    assert summary["wall_s"] is summary["output_tok_s"] is summary["total_tok_s"] is None


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


def test_refusal_of_an_unseen_request_is_a_row() -> None:
    (row,) = Metrics(info()).add(record(0, 0, 0, rejected=(Rejected("a", "bob", "needs 9 blocks, has 7"),)))
    assert row.as_dict()["finish_reason"] == "rejected" and row.as_dict()["error"] == "needs 9 blocks, has 7"
    assert row.as_dict()["ttft_s"] is None and row.client == "bob"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50))
def test_percentiles_are_numpys(values: list[float]) -> None:
    got = distribution(array("d", values))
    assert got["n"] == len(values)
    for name, q in (("p50", 50), ("p90", 90), ("p95", 95), ("p99", 99)):
        assert got[name] == pytest.approx(float(np.percentile(values, q)), abs=1e-6)
