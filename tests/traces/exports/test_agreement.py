"""Exports and summary say the same of every request: its row is made twice, by `Metrics` and by `Lives`."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.traces.test_accounts_of_runs import Run, crowd
from traces.exports.lives import Lives
from traces.metrics import LATENCIES, Metrics
from traces.request_row import RequestRow

ONE_SIDED = ("token_ids", "pieces", "slo_met")
"""Kept by `Metrics` alone."""


def a_run(seed: int, mode: str = "recompute") -> Run:
    """An iteration takes a second. Preempted requests outgrow the pool that is left, and end without running again."""
    return Run(
        crowd(seed), aborts=2, shrink_to=7, num_blocks=12, preemption_mode=mode, scheduler_reserve_full_isl=False
    )


@given(st.integers(0, 1 << 30), st.sampled_from(("recompute", "swap")))
@settings(max_examples=40, deadline=None)
def test_rows_are_the_same(seed: int, mode: str) -> None:
    run = a_run(seed, mode)
    metrics, lives = Metrics(run.info), Lives(run.info)
    for it in run.records:
        ours = metrics.add(it)
        lives.add(it)
        theirs = {life.row.id: life.row for life in lives.ended}
        assert sorted(theirs) == sorted(row.id for row in ours)
        for row in ours:
            for name in (*[field.name for field in fields(RequestRow)], *LATENCIES):
                if name not in ONE_SIDED:
                    assert getattr(row, name) == getattr(theirs[row.id], name), (row.id, name)


def test_these_runs_have_requests_that_waited_when_they_ended() -> None:
    waited = 0
    for seed in range(40):
        run = a_run(seed)
        metrics = Metrics(run.info)
        for it in run.records:
            out = {id for id, row in metrics.live.items() if row.preempted_at is not None}
            ran = {item.id for item in it.scheduled}
            waited += sum(row.id in out - ran and row.finish_reason == "length" for row in metrics.add(it))
    assert waited > 3
