"""Fitted costs find what made the times, and say what they rest on."""

from __future__ import annotations

import random

import pytest

from engine.config import EngineConfig
from engine.records import Copied, Iteration, Kind, Phase, Scheduled
from engine.whatif import FittedCosts, Journal
from engine.whatif.journal import Work, work_of

TRUE = {"step": 3e-3, "seq": 2e-4, "token": 4e-5, "context": 2e-7, "attention": 3e-8, "swap": 1e-4}


def synthetic(
    count: int, noise: float = 0.0, odd: int = 0, gap: float = 5e-4, seed: int = 0, swaps: float = 0.3
) -> Journal:
    """Records of random batches whose times are TRUE, with noise; `odd` of them take far too long."""
    rng = random.Random(seed)
    journal = Journal(EngineConfig.resolve())
    now = 0.0
    strange = set(rng.sample(range(10, count), odd)) if odd else set()
    for seq in range(count):
        scheduled = []
        for index in range(rng.randrange(1, 17)):
            tokens = 1 if rng.random() < 0.7 else rng.randrange(2, 200)
            start = rng.randrange(1000)
            scheduled.append(Scheduled(f"r{index}", tokens, Kind.RUNNING, Phase.DECODE, start, 0, ()))
        swapped = rng.randrange(20) if rng.random() < swaps else 0
        work = work_of([(item.num_tokens, item.computed_before) for item in scheduled], swapped)
        seconds = TRUE["step"] + sum(TRUE[name] * size for name, size in zip(list(TRUE)[1:], work, strict=True))
        seconds *= 1 + rng.uniform(-noise, noise)
        if seq in strange:
            seconds *= 20
        if seq < 5:
            seconds *= 3  # warm-up
        journal.add(
            Iteration(
                seq,
                seq + 1,
                now,
                now + seconds,
                budget=256,
                scheduled=tuple(scheduled),
                running=("r0",),
                copied=Copied(swapped, 0, 0),
            )
        )
        now += seconds + gap
    return journal


def test_coefficients_are_recovered() -> None:
    costs = FittedCosts.fit(synthetic(300))
    for name, value in TRUE.items():
        assert getattr(costs, name) == pytest.approx(value, rel=1e-6), name
    assert costs.between == pytest.approx(5e-4)
    assert costs.samples == 295 and costs.outliers == 0
    assert costs.mape == pytest.approx(0, abs=1e-6)
    assert costs.explained == pytest.approx(1) and not costs.notes


def test_noise_and_outliers() -> None:
    costs = FittedCosts.fit(synthetic(600, noise=0.05, odd=12))
    assert costs.outliers >= 12
    for name in ("step", "token", "attention"):
        assert getattr(costs, name) == pytest.approx(TRUE[name], rel=0.2), name
    assert costs.mape is not None and 0.015 < costs.mape < 0.04
    assert costs.mape_later is not None and 0.015 < costs.mape_later < 0.04
    assert costs.condition is not None and costs.condition > 1
    # 12 of 595 took 20 times as long.
    assert costs.explained == pytest.approx(595 / (583 + 20 * 12), rel=0.1)
    assert "interruptions took" in costs.notes[0]


def test_few_samples() -> None:
    costs = FittedCosts.fit(synthetic(6))
    assert costs.samples and "only" in costs.notes[0]
    assert costs.seconds(Work(4, 10, 100)) > 0
    nothing = FittedCosts.fit(Journal(EngineConfig.resolve()))
    assert nothing.samples == 0 and nothing.mape is None and nothing.notes
    assert nothing.seconds(Work(4, 4, 100)) == pytest.approx(1e-3 + 4e-5)


def test_it_says_when_it_extrapolates() -> None:
    costs = FittedCosts.fit(synthetic(100))
    assert not costs.beyond(Work(4, costs.most_tokens, costs.most_context))
    assert costs.beyond(Work(4, 2 * costs.most_tokens + 1, 0))
    assert costs.beyond(Work(4, 4, 2 * costs.most_context + 1))


def test_work_of_an_iteration() -> None:
    # A decode after 9 tokens, and a chunk of 4 after 8: (8 + 1) + ... + (8 + 4) pairs.
    assert work_of([(1, 9), (4, 8)], 3) == Work(2, 5, 10, 42.0, 3)


def test_as_dict_is_plain() -> None:
    import json

    assert json.loads(json.dumps(FittedCosts.fit(synthetic(30)).as_dict()))["samples"] == 25


def test_swapping_that_was_not_measured_is_assumed() -> None:
    measured = FittedCosts.fit(synthetic(300))
    assert not measured.swap_assumed
    assert measured.swap_seconds(3, 16) == pytest.approx(3 * TRUE["swap"], rel=1e-6)
    assert measured.swap_seconds(3, 32) == pytest.approx(6 * TRUE["swap"], rel=1e-6)
    never = FittedCosts.fit(synthetic(300, swaps=0.0))
    assert never.swap_assumed and never.swap == pytest.approx(16 * TRUE["token"] / 5, rel=1e-6)
    few = FittedCosts.fit(synthetic(6))
    assert few.swap_assumed and few.swap > 0
    nothing = FittedCosts.fit(Journal(EngineConfig.resolve()))
    assert nothing.swap_assumed and nothing.swap_seconds(1, 16) == pytest.approx(16 * 1e-5 / 5)
