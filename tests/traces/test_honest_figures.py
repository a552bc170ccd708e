"""What makes figures of other tools wrong must not touch ours: stalls, failures, preemptions, tokens without text.

Runs are the real scheduler's, with made-up tokens, on a clock that only the test moves.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.clock import ManualClock
from engine.host import EngineInfo
from engine.records import Cause, Iteration, Kind, Preempted
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.metrics import Metrics, RequestRow
from traces.slo import Slo


class Run:
    """A run to its end. An iteration takes `takes` seconds, and what `stall` says on top."""

    def __init__(
        self,
        requests: list[Request],
        *,
        takes: float = 0.01,
        stall: Callable[[int], float] = lambda call: 0.0,
        aborts: dict[int, list[str]] | None = None,
        slo: Slo | None = None,
        **knobs: Any,
    ) -> None:
        """stall: extra seconds of the iteration with this number. aborts: ids by the record before which they go."""
        clock = ManualClock()
        engine, executor = fake_engine(clock, **{"block_size": 4, "enable_prefix_caching": False, **knobs})
        executor.hook = lambda plan: clock.advance(takes + stall(executor.calls))
        self.metrics = Metrics(
            EngineInfo("fake", "cpu", "none", 1, engine.config, 256, 0, 0), planned=len(requests), slo=slo
        )
        self.records: list[Iteration] = []
        self.rows: dict[str, RequestRow] = {}
        for request in requests:
            engine.submit(request)
        while True:
            for id in (aborts or {}).pop(len(self.records), []):
                engine.abort(id)
            it = engine.step()
            if it is not None:
                self.records.append(it)
                self.rows.update((row.id, row) for row in self.metrics.add(it))
                continue
            if not engine.has_work():
                break
            due = engine.next_event()
            assert due is not None, "the engine has work and does nothing"
            clock.advance(max(0.0, due - clock.now()))
        self.summary = self.metrics.summary()
        json.dumps(self.summary, allow_nan=False)


def requests(count: int, every: float = 0.0, prompt: int = 6, output: int = 3) -> list[Request]:
    params = SamplingParams(max_tokens=output, ignore_eos=True)
    return [Request(f"r{n}", [n % 200] * prompt, params, arrival=n * every) for n in range(count)]


# ---- a stalled engine ------------------------------------------------------------------------------


@pytest.mark.parametrize("max_num_seqs", [64, 8])
def test_a_stall_of_two_seconds_shows(max_num_seqs: int) -> None:
    """200 requests, one every 20 ms; the iteration after the first second stands still for 2 s.

    About 100 requests fall due in the stall; the k-th of them before its end waits k * 20 ms and an iteration or two.
    """
    asked = requests(200, every=0.02)
    run = Run(
        asked,
        stall=lambda call: 2.0 if call == 51 else 0.0,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=512,
        num_blocks=2000,
    )
    assert {new.id: new.arrival for it in run.records for new in it.arrived} == {r.id: r.arrival for r in asked}
    assert run.summary["arrivals"] == {"open_loop": 200, "closed_loop": 0}
    ttft, lag = run.summary["ttft_s"], run.summary["lag_s"]
    assert ttft["n"] == 200 and ttft["max"] == pytest.approx(2.0, abs=0.6 if max_num_seqs == 8 else 0.1)
    assert ttft["p99"] == pytest.approx(ttft["max"], abs=0.1) and ttft["p99"] > 1.9
    assert lag["max"] == pytest.approx(2.0, abs=0.03)  # whoever fell due when it began was taken in at its end
    assert ttft["p90"] > 1.0 and lag["p90"] > 1.0  # a tenth of them waited more than a second of it
    # Counted from when they were admitted the stall is gone, but for those it caught in the middle.
    assert run.summary["ttft_admit_s"]["p95"] < 0.05
    calm = Run(requests(200, every=0.02), max_num_seqs=max_num_seqs, max_num_batched_tokens=512, num_blocks=2000)
    assert calm.summary["ttft_s"]["max"] < 0.05 and calm.summary["lag_s"]["max"] < 0.02


def test_lag_is_the_start_of_the_step_that_took_it_in() -> None:
    """Due at 1.25, while an iteration runs from 1 to 2; taken in by the step that begins at 2, run from 3 on."""
    metrics = Metrics(info())
    metrics.add(record(0, 1, 2, arrived=(arrived("a", 1.0),), scheduled=(scheduled("a", 4, kind=Kind.NEW),)))
    metrics.add(record(1, 2, 3, arrived=(arrived("b", 1.25),), scheduled=(scheduled("a"),), tokens=(token("a"),)))
    (row,) = metrics.add(record(2, 3, 4, scheduled=(scheduled("b", 4, kind=Kind.NEW),), tokens=(token("b"),),
                                finished=(finished("b"),)))  # fmt: skip
    told = row.as_dict()
    assert (told["lag_s"], told["queue_s"], told["ttft_admit_s"], told["ttft_s"]) == (0.75, 1.75, 1.0, 2.75)


def test_a_request_ended_before_its_time_was_not_late() -> None:
    metrics = Metrics(info())
    (row,) = metrics.add(record(0, 1, 2, arrived=(arrived("a", 50.0),), finished=(finished("a"),)))
    assert row.lag_s == 0.0


def test_a_closed_loop_is_told_apart_and_counts_from_its_own_arrival() -> None:
    """The second turn is due 3 s after the first ended at 2: at 5."""
    metrics = Metrics(info())
    metrics.add(record(0, 0, 2, arrived=(arrived("t1", 0.0, session="s"),), scheduled=(scheduled("t1", 4),),
                       tokens=(token("t1"),), finished=(finished("t1"),)))  # fmt: skip
    second = arrived("t2", 5.0, session="s", after="t1", delay=3.0)
    (row,) = metrics.add(record(1, 5, 6, arrived=(second,), scheduled=(scheduled("t2", 4),), tokens=(token("t2"),),
                                finished=(finished("t2"),)))  # fmt: skip
    assert row.ttft_s == 1.0 and (row.as_dict()["session"], row.as_dict()["after"]) == ("s", "t1")
    assert metrics.summary()["arrivals"] == {"open_loop": 1, "closed_loop": 1}


# ---- the right event -------------------------------------------------------------------------------


def test_a_first_token_without_text_is_the_first_token() -> None:
    """Half a character: its text comes with the second token."""
    metrics = Metrics(info())
    metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0),), scheduled=(scheduled("a", 4, kind=Kind.NEW),),
                       tokens=(token("a", 1, ""),)))  # fmt: skip
    (row,) = metrics.add(record(1, 1, 9, scheduled=(scheduled("a"),), tokens=(token("a", 2, "é"),),
                                finished=(finished("a"),)))  # fmt: skip
    assert (row.ttft_s, row.tpot_s, row.text) == (1.0, 8.0, "é")


# ---- failures --------------------------------------------------------------------------------------


def test_failures_never_enter_latencies() -> None:
    """100 rows: 20 too long for the model, 10 aborted, 5 with ids it does not know; 65 complete."""
    asked = requests(65)
    params = SamplingParams(max_tokens=300, ignore_eos=True)
    asked += [Request(f"long{n}", [1] * (400 + n), params, arrival=0.0) for n in range(20)]
    asked += [Request(f"gone{n}", [2] * 6, params, arrival=0.0) for n in range(10)]
    asked += [Request(f"odd{n}", [3, 5000 + n], params, arrival=0.0) for n in range(5)]
    run = Run(
        asked, aborts={4: [f"gone{n}" for n in range(10)]}, slo=Slo(100.0, 100.0),
        max_model_len=400, num_blocks=200, max_num_seqs=100,
    )  # fmt: skip
    summary = run.summary
    assert summary["requests"] == {
        "planned": 100, "completed": 65, "rejected": 25, "failed": 0, "aborted": 10, "unfinished": 0,
    }  # fmt: skip
    assert summary["failures"] == {
        "failed": {},
        "aborted": {"aborted": 10},
        "rejected": {
            "the prompt has N tokens, max_model_len N leaves room for N and one output": 20,
            "the prompt has token ids outside the vocabulary (N to N)": 5,
        },
    }
    alone = Run(requests(65), max_model_len=400, num_blocks=200, max_num_seqs=100).summary
    for name in ("queue_s", "ttft_s", "tpot_s", "itl_max_s", "e2e_s"):
        assert summary[name]["n"] == alone[name]["n"] == 65
        assert summary[name]["p50"] == pytest.approx(alone[name]["p50"], abs=0.011)  # an iteration more or less
    both = summary["with_failures"]["ttft_s"]
    assert (both["n"], both["inf"], both["p90"], both["p99"]) == (100, 35, "inf", "inf")
    # The 50th value of 100 is among the 65.
    first = sorted(row.ttft_s for row in run.rows.values() if row.finish_reason == "length")
    assert both["p50"] == pytest.approx((first[49] + first[50]) / 2, abs=1e-6)
    assert (summary["slo_attainment"], summary["good"]) == (0.65, 65)
    assert summary["tokens"]["output"] > 65 * 3  # the aborted ones had some
    assert summary["completed_output_tok_s"] == pytest.approx(65 * 3 / summary["wall_s"], abs=1e-5)
    assert summary["output_tok_s"] == pytest.approx(summary["tokens"]["output"] / summary["wall_s"], abs=1e-5)


def test_nothing_completed_is_not_0() -> None:
    summary = Run([Request(f"r{n}", [1] * 500, SamplingParams(), arrival=0.0) for n in range(3)], max_model_len=64)
    got = summary.summary
    assert got["requests"]["rejected"] == 3 and got["ttft_s"]["n"] == 0 and got["ttft_s"]["p50"] is None
    assert got["output_tok_s"] is got["completed_output_tok_s"] is got["completed_rps"] is got["total_tok_s"] is None
    assert got["with_failures"]["ttft_s"]["p50"] == "inf"


# ---- preemption ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_a_preemption_distorts_nothing(mode: str) -> None:
    """Requests that outgrow the pool together, against the same ones in a pool that holds them all."""
    asked = {"max_num_seqs": 4, "max_num_batched_tokens": 64, "preemption_mode": mode}
    narrow = Run(requests(4, prompt=6, output=20), num_blocks=20, **asked)
    wide = Run(requests(4, prompt=6, output=20), num_blocks=400, **asked)
    assert narrow.summary["preemptions"] > 0 and wide.summary["preemptions"] == 0
    assert (narrow.summary["tokens"]["recomputed"] > 0) is (mode == "recompute")
    for name in ("prompt", "output"):
        assert narrow.summary["tokens"][name] == wide.summary["tokens"][name] == 4 * {"prompt": 6, "output": 20}[name]
    victims = {victim.id for it in narrow.records for victim in it.preempted}
    starts = {it.seq: it.t_start for it in narrow.records}
    for id, row in narrow.rows.items():
        other = wide.rows[id]
        assert row.ttft_s == other.ttft_s and row.queue_s == other.queue_s  # all had their first token before
        assert row.token_ids == other.token_ids and len(row.times) == 20
        assert list(np.diff(row.times) > 0) == [True] * 19
        if id not in victims:
            assert row.requeue_s == 0.0
            continue
        out = [it.seq for it in narrow.records for victim in it.preempted if victim.id == id]
        back = [it.seq for it in narrow.records for item in it.scheduled
                if item.id == id and item.kind in (Kind.RESUMED, Kind.SWAPPED_IN)]  # fmt: skip
        waits = [starts[after] - starts[before] for before, after in zip(out, back, strict=True)]
        assert row.requeue_s == pytest.approx(sum(waits)) and row.preemptions == len(out)
        assert row.itl_max_s is not None and row.itl_max_s >= max(waits) > 0.01
        assert row.e2e_s is not None and other.e2e_s is not None
        assert row.e2e_s - other.e2e_s >= row.requeue_s - 0.011
    assert narrow.summary["itl_max_s"]["max"] > 2 * wide.summary["itl_max_s"]["max"]
    assert wide.summary["requeue_s"]["max"] == 0.0 and narrow.summary["requeue_s"]["max"] > 0


def test_requeue_by_hand() -> None:
    """Out at 2, back at 5; out again at 7, and at 9 it is full and ends without running: 3 + 3 seconds by the end."""
    metrics = Metrics(info())
    out = Preempted("a", "b", 1, 0, 4, 1, Cause.BLOCKS)
    metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0),), scheduled=(scheduled("a", 4, kind=Kind.NEW),),
                       tokens=(token("a"),)))  # fmt: skip
    metrics.add(record(1, 2, 3, preempted=(out,)))
    metrics.add(record(2, 5, 6, scheduled=(scheduled("a", 5, recomputed=4, kind=Kind.RESUMED),), tokens=(token("a"),)))
    metrics.add(record(3, 7, 8, preempted=(out,)))
    (row,) = metrics.add(record(4, 9, 10, finished=(finished("a", preemptions=2),)))
    assert row.as_dict()["requeue_s"] == 5.0 and row.as_dict()["queue_s"] == 0.0
    assert row.as_dict()["itl_max_s"] == 5.0 and row.as_dict()["tpot_s"] == 5.0 and row.as_dict()["ttft_s"] == 1.0
    assert row.as_dict()["norm_s"] == 3.0 and row.as_dict()["e2e_s"] == 6.0
    assert metrics.summary()["tokens"] == {"prompt": 4, "output": 2, "cached": 0, "recomputed": 4}


def test_memory_of_a_completed_request_is_a_few_floats() -> None:
    """20,000 requests of 3 tokens leave nine floats each and no gaps beyond the pool's."""
    metrics = Metrics(info())
    for n in range(20_000):
        id = f"r{n}"
        metrics.add(record(n, n, n + 1, arrived=(arrived(id, n),), scheduled=(scheduled(id, 4, kind=Kind.NEW),),
                           tokens=(token(id), token(id), token(id)), finished=(finished(id),)))  # fmt: skip
    assert not metrics.live and not metrics.clients.live
    assert sum(len(pool) for pool in metrics._pools.values()) == 9 * 20_000
    assert metrics.summary()["itl_s"]["n"] == 40_000
