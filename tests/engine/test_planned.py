"""Requests that are planned under one pool and arrive under another."""

from __future__ import annotations

from engine.clock import ManualClock
from engine.engine import Engine
from engine.records import Iteration
from engine.request import FinishReason, Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine


def planned(lengths: dict[str, int]) -> tuple[Engine, ManualClock]:
    clock = ManualClock()
    engine, _ = fake_engine(clock, num_blocks=24, block_size=4)
    for id, length in lengths.items():
        engine.submit(Request(id, [1] * length, SamplingParams(max_tokens=4), arrival=1.0))
    engine.set_knob("num_blocks", 10)
    return engine, clock


def records(engine: Engine) -> list[Iteration]:
    out = []
    while engine.has_work():
        it = engine.step()
        assert it is not None, "stuck"
        out.append(it)
    return out


def test_a_prompt_that_no_longer_fits_is_refused_on_arrival() -> None:
    """It would wait at the head of the queue for ever, and everybody behind it too."""
    engine, clock = planned({"long": 60, "short": 6})
    clock.advance(1.0)
    run = records(engine)
    refused = [item for it in run for item in it.rejected]
    assert [item.id for item in refused] == ["long"] and "16 KV blocks, the pool has 9" in refused[0].reason
    assert [(done.id, done.reason) for it in run for done in it.finished] == [("short", FinishReason.LENGTH)]
    assert run[-1].planned == 0


def test_with_enough_blocks_again_it_runs() -> None:
    engine, clock = planned({"long": 60})
    engine.set_knob("num_blocks", 24)
    clock.advance(1.0)
    assert [(done.id, done.output_len) for it in records(engine) for done in it.finished] == [("long", 4)]
