"""Goodput: what a good request is, and the two figures that count them."""

from __future__ import annotations

import pytest

from engine.records import Kind, Rejected
from engine.request import FinishReason
from tests.traces.records import arrived, finished, info, record, scheduled, token
from traces.metrics import Metrics
from traces.slo import LIMITS_MS, Slo


def test_presets_are_mlperfs_server_limits() -> None:
    """mlperf.conf of MLPerf Inference, Server scenario: TTFT and TPOT in ms."""
    assert LIMITS_MS["chat"] == LIMITS_MS["llama2-70b"] == (2000, 200)
    assert LIMITS_MS["interactive"] == LIMITS_MS["llama2-70b-interactive"] == (450, 40)
    assert LIMITS_MS["llama3.1-8b"] == (2000, 100) and LIMITS_MS["llama3.1-8b-interactive"] == (500, 30)
    assert LIMITS_MS["llama3.1-405b"] == (6000, 175) and LIMITS_MS["llama3.1-405b-interactive"] == (4500, 80)
    assert LIMITS_MS["mixtral"] == (2000, 200)
    assert LIMITS_MS["deepseek-r1"] == (2000, 80) and LIMITS_MS["deepseek-r1-interactive"] == (1500, 15)
    assert LIMITS_MS["gpt-oss-120b"] == (3000, 80) and LIMITS_MS["gpt-oss-120b-interactive"] == (2000, 15)


@pytest.mark.parametrize(
    ("ttft", "tpot", "good"),
    [
        (2.0, 0.2, True),
        (2.000001, 0.1, False),
        (2.0000000004, 0.1, True),  # less than a microsecond over it is noise
        (1.0, 0.200001, False),
        (1.0, None, True),  # one token: TTFT alone decides
        (2.1, None, False),
        (None, None, False),
    ],
)
def test_both_limits_hold(ttft: float | None, tpot: float | None, good: bool) -> None:
    assert Slo.preset("chat").met(ttft, tpot) is good


def test_scale_and_a_single_limit() -> None:
    slo = Slo.preset("interactive", scale=4)
    assert slo.as_dict() == {"name": "interactive", "ttft_s": 1.8, "tpot_s": 0.16, "scale": 4}
    assert slo.met(1.8, 0.16) and not slo.met(1.81, 0.16) and not slo.met(1.8, 0.17)
    assert Slo(None, 0.1).met(1e9, 0.1) and not Slo(None, 0.1).met(0.0, 0.2)
    assert Slo(0.5, None).met(0.5, 1e9) and Slo(0.5, None).as_dict()["tpot_s"] is None


def test_goodput_by_hand() -> None:
    """Six planned in 10 s: two good, one late, one slow, one aborted, one refused. 2 of 6; 0.2 a second."""
    metrics = Metrics(info(), planned=6, slo=Slo(1.0, 1.0))
    ids = ("good", "one", "slow", "gone", "late")
    metrics.add(record(0, 0, 1, arrived=tuple(arrived(id, 0.0, client=id, priority=int(id == "one")) for id in ids),
                       rejected=(Rejected("no", "no", "the prompt is empty"),),
                       scheduled=tuple(scheduled(id, 4, kind=Kind.NEW) for id in ids[:4]),
                       tokens=tuple(token(id) for id in ids[:4]), finished=(finished("one"),)))  # fmt: skip
    metrics.add(record(1, 1, 2, scheduled=(scheduled("good"),), tokens=(token("good"),)))
    metrics.add(record(2, 2, 10, scheduled=(scheduled("slow"), scheduled("late", 4, kind=Kind.NEW)),
                       tokens=(token("slow"), token("late")),
                       finished=(finished("gone", FinishReason.ABORT),
                                 *(finished(id) for id in ("good", "slow", "late")))))  # fmt: skip
    summary = metrics.summary()
    assert summary["requests"]["completed"] == 4
    assert (summary["good"], summary["goodput_rps"], summary["slo_attainment"]) == (2, 0.2, round(2 / 6, 6))
    assert summary["completed_rps"] == 0.4
    assert summary["slo"] == {"name": "custom", "ttft_s": 1.0, "tpot_s": 1.0, "scale": 1.0}
    attained = {name: account["slo_attainment"] for name, account in summary["clients"].items()}
    assert attained == {"good": 1.0, "one": 1.0, "slow": 0.0, "gone": 0.0, "late": 0.0, "no": 0.0}
    classes = summary["fairness"]["priorities"]
    assert (classes["0"]["slo_attainment"], classes["1"]["slo_attainment"]) == (0.25, 1.0)
    assert (classes["0"]["completed"], classes["0"]["arrived"]) == (3, 4)


def test_nobody_was_good_is_0_and_nobody_was_there_is_null() -> None:
    metrics = Metrics(info(), slo=Slo.preset("chat"))
    assert metrics.summary()["slo_attainment"] is metrics.summary()["goodput_rps"] is None
    assert metrics.summary()["good"] == 0
    metrics.add(record(0, 0, 1, arrived=(arrived("a", 0.0),), scheduled=(scheduled("a", 4, kind=Kind.NEW),)))
    assert (metrics.summary()["slo_attainment"], metrics.summary()["goodput_rps"]) == (0.0, 0.0)


def test_rows_tell_whether_they_were_good() -> None:
    metrics = Metrics(info(), slo=Slo(1.0, None))
    both = (arrived("a", 0.0), arrived("b", 0.0))
    rows = metrics.add(record(0, 0, 1, arrived=both, rejected=(Rejected("c", "x", "the prompt is empty"),),
                              scheduled=(scheduled("a", 4, kind=Kind.NEW),), tokens=(token("a"),),
                              finished=(finished("b", FinishReason.ERROR), finished("a"))))  # fmt: skip
    assert {row.id: row.as_dict()["slo_met"] for row in rows} == {"a": True, "b": False, "c": False}
