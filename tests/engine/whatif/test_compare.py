"""Two futures side by side."""

from __future__ import annotations

import json

import numpy as np
import pytest

from engine.errors import ForkError
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.whatif import ForkPoint, compare, fork
from tests.engine.whatif.recordings import record, refusal, requests, timed_engine
from tests.engine.whatif.test_fork import TIGHT, recording


def test_a_future_compared_with_itself() -> None:
    journal, _ = recording()
    future = fork(journal, 10, {})
    same = compare(future, future)
    assert all(row.a == row.b for row in same.rows)
    assert all(delta in (0, None) for delta in same.deltas.values())


def test_totals_and_rows() -> None:
    journal, records = recording(every=0.005)
    point = ForkPoint(journal, 0)
    result = compare(point.baseline, point.future({"num_blocks": 300}))
    a, b = result.totals_a, result.totals_b
    assert a.preemptions == sum(len(it.preempted) for it in point.baseline.records) > 0 == b.preemptions
    assert a.recomputed_tokens > 0 == b.recomputed_tokens
    assert a.output_tokens == b.output_tokens == sum(len(it.tokens) for it in records)
    assert a.finished == b.finished == 20
    assert result.deltas["preemptions"] == -a.preemptions
    assert b.makespan_s < a.makespan_s
    assert len(result.rows) == 20 and [row.id for row in result.rows] == [f"r{i}" for i in range(20)]
    for row in result.rows:
        for outcome in (row.a, row.b):
            assert outcome.ttft_s is not None and outcome.e2e_s is not None
            assert 0 < outcome.ttft_s <= outcome.e2e_s
            assert outcome.reason == "length"
    assert sum(row.a.preemptions for row in result.rows) == a.preemptions
    assert sum(row.a.recomputed_tokens for row in result.rows) == a.recomputed_tokens
    ttfts = [row.b.ttft_s for row in result.rows if row.b.ttft_s is not None]
    assert b.ttft_p50_s == pytest.approx(np.percentile(ttfts, 50))


def test_curves() -> None:
    journal, _ = recording()
    future = fork(journal, 10, {})
    result = compare(future, fork(journal, 10, {"num_blocks": 20}))
    curve = result.curves_a
    assert len(curve.times) == len(curve.blocks) == len(curve.running) == result.totals_a.iterations
    assert (np.diff(curve.times) > 0).all()
    assert curve.blocks.max() == result.totals_a.peak_blocks <= 23
    assert result.curves_b.blocks[1:].max() <= 23


def test_requests_from_before_the_fork_keep_their_first_token() -> None:
    journal, records = recording()
    first = {}
    for it in records:
        for token in it.tokens:
            first.setdefault(token.id, (it.t_end, it.step))
    result = compare(fork(journal, 30, {}), fork(journal, 30, {"max_num_seqs": 1}))
    early = [row for row in result.rows if first[row.id][1] <= 30]
    assert early
    for row in early:
        assert row.a.ttft_s == row.b.ttft_s == pytest.approx(first[row.id][0])  # they arrive at 0
    assert result.totals_a.ttft_p50_s is not None
    whole = {done.id: done for it in records for done in it.finished}
    for row in result.rows:
        assert row.a.output_tokens == whole[row.id].output_len
        assert row.a.preemptions == whole[row.id].preemptions
        assert row.a.recomputed_tokens == whole[row.id].recomputed_tokens


def test_plain_data() -> None:
    engine, clock = timed_engine(**TIGHT)
    for request in requests(10):
        engine.submit(request)
    journal, _ = record(engine, clock, most=25)
    point = ForkPoint(journal, 20)
    result = compare(point.baseline, point.future({"max_num_seqs": 2}, horizon=3))
    data = json.loads(json.dumps(result.as_dict()))
    assert {"requests", "totals", "curves", "notes"} == data.keys()
    assert data["totals"]["delta"]["iterations"] == 3 - data["totals"]["a"]["iterations"]
    assert any(note.startswith("A: ") for note in data["notes"])
    assert any(row["a"]["assumed"] for row in data["requests"])


def test_futures_of_different_moments_are_refused() -> None:
    journal, _ = recording()
    assert "iterations 3 and 4" in refusal(ForkError, lambda: compare(fork(journal, 3, {}), fork(journal, 4, {})))


def test_only_what_was_completed_is_finished() -> None:
    engine, clock = timed_engine(num_blocks=60, block_size=4, max_num_seqs=4)

    def tokens(id: str, position: int) -> int:
        return {"r0": 257, "r1": -1}.get(id, 65) if position > 20 else 65

    engine.executor.tokens = tokens  # type: ignore[attr-defined]
    for index in range(4):
        engine.submit(Request(f"r{index}", [1, 2, 3, 4], SamplingParams(max_tokens=40)))
    journal, _ = record(engine, clock, lambda step: engine.abort("r2") if step == 20 else None)
    totals = compare(fork(journal, 3, {}), fork(journal, 3, {"max_num_seqs": 3})).totals_a
    assert (totals.finished, totals.aborted, totals.failed, totals.rejected) == (2, 1, 1, 0)
