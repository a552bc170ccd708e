"""Preemption storms are named, with their cause and a cure that works."""

from __future__ import annotations

import re

from engine.engine import Engine
from engine.records import Cause, Preempted
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.thrash import MANY, WINDOW, Pressure, ThrashDetector
from tests.engine.fakes import fake_engine
from tests.engine.harness import Run, run


def victim(cause: Cause = Cause.BLOCKS) -> Preempted:
    return Preempted("a", "b", 1, 0, 50, 4, cause)


def overloaded(**asked: object) -> Engine:
    engine, _ = fake_engine(
        num_blocks=32, block_size=4, max_model_len=100, max_num_batched_tokens=64, max_num_seqs=12,
        enable_prefix_caching=False, **asked,
    )  # fmt: skip
    for number in range(40):
        params = SamplingParams(max_tokens=40, ignore_eos=True)
        engine.submit(Request(f"r{number}", [number] * 10, params))
    return engine


def storms(out: Run) -> list[str]:
    return [notice for it in out.iterations for notice in it.notices if "preemption storm" in notice]


def test_begins_and_ends() -> None:
    detector = ThrashDetector()
    assert not detector.count([victim()] * (MANY - 1), 100, 50)
    assert detector.count([victim()], 100, 50)
    text = detector.name(Pressure(120, 10, 60, 0, "fcfs"))
    assert "8 preemptions" in text and "120 KV blocks" in text and "max_num_seqs about 5" in text
    assert detector.cause and not detector.count([victim()] * 9, 100, 90), "told once while it lasts"
    for _ in range(WINDOW):
        detector.count([], 100, 0)
    assert detector.cause == ""


def test_cheap_preemptions_are_no_storm() -> None:
    detector = ThrashDetector()
    assert not any(detector.count([victim()], 1000, 10) for _ in range(WINDOW))


def test_what_a_person_does_is_no_storm() -> None:
    detector = ThrashDetector()
    assert not detector.count([victim(Cause.SHRINK)] * 9 + [victim(Cause.REBUILD)] * 9, 100, 90)


def test_a_storm_is_over_when_nobody_is_left() -> None:
    out = run(overloaded())
    assert out.iterations[-1].storm == ""


def test_causes() -> None:
    for causes, in_prompt, word in (
        ([Cause.DISPLACED] * 9, 0, "policy srpt displaces"),
        ([Cause.BLOCKS] * 9, 7, "admitted by their first chunk"),
        ([Cause.BLOCKS] * 9, 2, "need up to 120 KV blocks"),
    ):
        detector = ThrashDetector()
        assert detector.count([victim(cause) for cause in causes], 100, 60)
        assert word in detector.name(Pressure(120, 10, 60, in_prompt, "srpt"))
        assert word in detector.cause


def test_a_storm_of_a_real_schedule_and_its_cure() -> None:
    out = run(overloaded())
    told = storms(out)
    assert told and any(it.storm for it in out.iterations)
    cure = re.search(r"max_num_seqs about (\d+)", told[0])
    assert cure is not None
    calm = run(_with_slots(int(cure[1])))
    assert not storms(calm), "the cure works"
    assert sum(len(it.preempted) for it in calm.iterations) < sum(len(it.preempted) for it in out.iterations) / 4


def _with_slots(slots: int) -> Engine:
    engine = overloaded()
    engine.set_knob("max_num_seqs", slots)
    return engine


def test_swapping_back_and_forth_is_one_too() -> None:
    assert storms(run(overloaded(preemption_mode="swap", num_cpu_blocks=200)))
