"""Sampling against transformers' logits warpers, and what must never happen at numerical edges (FAULTS R-13)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from engine.executors.base import UNSAMPLED
from engine.sampler import SHORTLIST, Draw, filtered_probabilities, sample, seed_of, uniform
from engine.sampling_params import GREEDY_BELOW, SamplingParams

VOCABULARIES = [50, 3 * SHORTLIST]


def logits_of(rows: int, vocabulary: int, spread: float = 3.0, seed: int = 0) -> torch.Tensor:
    return torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * spread


def by_transformers(logits: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """vLLM's order (temperature, min_p, top_k, top_p), made of transformers' warpers, in float64."""
    from transformers import MinPLogitsWarper, TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    warpers: list[Any] = [TemperatureLogitsWarper(params.temperature)]
    warpers += [MinPLogitsWarper(params.min_p)] if params.min_p > 0 else []
    warpers += [TopKLogitsWarper(params.top_k)] if params.top_k > 0 else []
    warpers += [TopPLogitsWarper(params.top_p)] if params.top_p < 1 else []
    scores = logits.double()
    for warper in warpers:
        scores = warper(None, scores)
    return scores.softmax(-1)


def ours(logits: torch.Tensor, params: list[SamplingParams]) -> torch.Tensor:
    p = filtered_probabilities(logits, params)
    return p / p.cumsum(-1)[:, -1:]


def check(logits: torch.Tensor, params: list[SamplingParams]) -> None:
    """Every row of one mixed batch, and every row alone, is transformers' answer for it; the two to the last bit."""
    got = ours(logits, params)
    for row, param in enumerate(params):
        assert torch.equal(ours(logits[row : row + 1], [param])[0], got[row]), f"neighbours matter with {param}"
        expected = by_transformers(logits[row : row + 1], param)[0]
        assert torch.equal(got[row] > 0, expected > 0), f"other tokens are kept with {param}"
        torch.testing.assert_close(got[row], expected, atol=1e-12, rtol=1e-9)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize(
    "settings",
    [
        [{"temperature": t} for t in (0.01, 0.3, 1.0, 2.0, 50.0)],
        [{"top_k": k} for k in (1, 2, 7, 49, 50, 1000, SHORTLIST, SHORTLIST + 1, 2500, 10**6)],
        [{"top_p": p} for p in (1e-6, 0.1, 0.5, 0.9, 0.999, 1.0)],
        [{"min_p": m} for m in (1e-9, 0.01, 0.2, 1.0)],
    ],
    ids=["temperature", "top_k", "top_p", "min_p"],
)
def test_one_by_one(settings: list[dict[str, Any]], vocabulary: int) -> None:
    params = [SamplingParams(**{"temperature": 1.0, **setting}) for setting in settings]
    check(logits_of(len(params), vocabulary), params)


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_combined(spread: float, vocabulary: int) -> None:
    rng = np.random.default_rng(int(spread * 100))
    params = [
        SamplingParams(
            temperature=float(rng.choice([0.05, 0.7, 1.0, 3.0])),
            top_k=int(rng.choice([0, -1, 1, 5, 40, 2000, 2900])),
            top_p=float(rng.choice([1.0, 1e-6, 0.3, 0.9, 0.99])),
            min_p=float(rng.choice([0.0, 0.0, 0.05, 0.5])),
        )
        for _ in range(64)
    ]
    check(logits_of(64, vocabulary, spread, seed=1), params)


def draw_many(logits: torch.Tensor, params: SamplingParams, count: int, seed: int = 0) -> np.ndarray:
    rows = logits.expand(count, -1)
    return np.array(sample(rows, [Draw(params, seed, position) for position in range(count)]))


@pytest.mark.parametrize(
    "params", [SamplingParams(temperature=1.0), SamplingParams(temperature=0.7, top_k=12, top_p=0.9, min_p=0.01)]
)
def test_distribution(params: SamplingParams) -> None:
    """Pearson's chi-square over 20,000 draws; 5 standard deviations of its own distribution."""
    logits = logits_of(1, 30, 1.5)
    counts = np.bincount(draw_many(logits, params, 20000, seed=3), minlength=30)
    p = by_transformers(logits, params)[0].numpy()
    assert counts[p == 0].sum() == 0
    kept = p > 0
    expected = p[kept] * 20000
    chi2, freedom = ((counts[kept] - expected) ** 2 / expected).sum(), kept.sum() - 1
    assert abs(chi2 - freedom) < 5 * math.sqrt(2 * freedom)


def test_distribution_over_seeds() -> None:
    """The same position under many seeds is as good as many positions under one seed."""
    logits, params = logits_of(1, 10, 1.0), SamplingParams(temperature=1.0)
    tokens = sample(logits.expand(20000, -1), [Draw(params, seed, 5) for seed in range(20000)])
    expected = logits[0].double().softmax(-1).numpy() * 20000
    chi2 = ((np.bincount(tokens, minlength=10) - expected) ** 2 / expected).sum()
    assert abs(chi2 - 9) < 5 * math.sqrt(18)


def test_zero_probability_is_never_drawn() -> None:
    params = SamplingParams(temperature=1.0, top_k=3)
    for seed in range(4):
        logits = logits_of(1, 2000, seed=seed)
        allowed = set(logits[0].topk(3).indices.tolist())
        drawn = set(draw_many(logits, params, 500, seed=seed).tolist())
        assert drawn <= allowed and len(drawn) > 1
    # Underflow makes zeros too: far-away tokens at a low temperature.
    logits = torch.linspace(-1000, 0, 2000)[None]
    drawn = draw_many(logits, SamplingParams(temperature=0.01), 2000)
    p = (logits[0].double() / 0.01).softmax(-1)
    assert all(p[token] > 0 for token in set(drawn.tolist()))


@pytest.mark.parametrize("u", [0.0, 1.0 - 2.0**-53])
def test_ends_of_the_unit_interval(u: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first and the last token of positive probability, not the zeros around them."""
    monkeypatch.setattr("engine.sampler.uniform", lambda seed, position: u)
    logits = torch.full((1, 3000), -2000.0)
    logits[0, [5, 9, 2500]] = 0.0
    draw = Draw(SamplingParams(temperature=1.0), 0, 0)
    assert sample(logits, [draw]) == [5 if u == 0 else 2500]


def test_near_greedy_settings() -> None:
    logits = logits_of(6, 3000)
    best = logits.argmax(-1).tolist()
    for setting in (
        {"temperature": 0.0},
        {"temperature": 1e-12},
        {"temperature": 5e-324},
        {"temperature": 1e-5},
        {"temperature": 1e-4},
        {"temperature": 2.0, "top_p": 1e-6},
        {"temperature": 2.0, "top_k": 1},
        {"temperature": 2.0, "min_p": 1.0},
    ):
        assert sample(logits, [Draw(SamplingParams(**setting), 1, 7)] * 6) == best, setting
    assert SamplingParams(temperature=GREEDY_BELOW / 2, seed=1).greedy


def test_mixed_batch_at_the_edges() -> None:
    """R-13: everything in one batch; non-finite rows are marked and the others get what they get alone."""
    logits = logits_of(12, 500)
    bad = {2: math.nan, 5: math.inf, 8: -math.inf}
    for row, value in bad.items():
        logits[row, 77] = value
    logits[9] = 3e38
    settings = [
        {}, {"temperature": 1e-12}, {"temperature": 1.0}, {"temperature": 1e-5}, {"temperature": 0.01}, {},
        {"temperature": 2.0}, {"temperature": 1.0, "top_p": 1e-6}, {"temperature": 1.0}, {"temperature": 1.0},
        {"temperature": 1.0, "top_k": 1}, {"temperature": 1e30},
    ]  # fmt: skip
    draws = [Draw(SamplingParams(**setting), row, 3 * row) for row, setting in enumerate(settings)]
    together = sample(logits, draws)
    for row in range(12):
        alone = sample(logits[row : row + 1], [draws[row]])[0]
        assert together[row] == alone
        assert (alone == UNSAMPLED) == (row in bad)
        assert -1 <= alone < 500


def test_a_row_alone_or_in_any_batch() -> None:
    rng = np.random.default_rng(0)
    logits = logits_of(40, 3000)
    draws = [
        Draw(SamplingParams(temperature=1.0, top_k=int(rng.choice([0, 20, 2000])), top_p=float(rng.choice([1, 0.8]))),
             row, row)
        for row in range(40)
    ]  # fmt: skip
    alone = [sample(logits[row : row + 1], draws[row : row + 1])[0] for row in range(40)]
    for _ in range(5):
        order = rng.permutation(40)[: rng.integers(2, 40)]
        assert sample(logits[order], [draws[row] for row in order]) == [alone[row] for row in order]


def test_uniform() -> None:
    """Kolmogorov-Smirnov over positions of one seed and over seeds at one position; and no correlation in between."""
    for values in (
        [uniform(42, position) for position in range(20000)],
        [uniform(seed, 3) for seed in range(20000)],
    ):
        ordered = np.sort(values)
        assert ordered[0] >= 0 and ordered[-1] < 1
        distance = np.abs(ordered - (np.arange(20000) + 0.5) / 20000).max()
        assert distance < 1.95 / math.sqrt(20000)
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 5 / math.sqrt(20000)
    # Not the same stream shifted: seed s at position p is no other seed's at p + 1.
    assert {uniform(1, p) for p in range(1000)}.isdisjoint({uniform(2, p) for p in range(1000)})


def test_splitmix64_as_published() -> None:
    """Steele, Lea and Flood's generator; the first outputs for seed 1234567, as in their reference code."""
    from engine.sampler import _mix

    state, expected = 1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [_mix((state + i * 0x9E3779B97F4A7C15) % 2**64) for i in range(3)] == expected


def test_seed_of() -> None:
    given = SamplingParams(temperature=1.0, seed=5)
    assert seed_of("a", given, 0) == seed_of("b", given, 1) == 5
    assert seed_of("a", SamplingParams(seed=0), 3) == 0
    assert seed_of("a", SamplingParams(seed=-1), 0) == 2**64 - 1
    free = SamplingParams(temperature=1.0)
    assert seed_of("a", free, 0) == seed_of("a", free, 0)
    assert len({seed_of(id, free, engine) for id in "abc" for engine in (0, 1)}) == 6
