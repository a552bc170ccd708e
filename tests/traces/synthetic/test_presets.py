"""Presets against what is published of the real traces: percentiles, burstiness, shares.

The right values stand here as in the papers' and traces' own figures, not as the generator knows them: p50 and p90 of
lengths within 5 %, coefficients of variation within 10 %, at 2,000 rows, whatever the seed.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable

import numpy as np
import pytest

from traces.prefixes import reuse
from traces.synthetic import PRESETS, generate
from traces.workload import RequestSpec

SEEDS = (0, 1, 2, 3, 4, 2026)
N = 2000

AZURE_CONV = ((1020, 2734), (129, 424))
AZURE_CODE = ((1469, 5188), (13, 55))
MOONCAKE = ((6909, 27367), (350, 597))
ARXIV = ((2730, 3702), (167, 372))
RAGPULSE = ((3140, 3958), (234, 563))
VTC_ARENA = ((40, 432), (211, 513))
DEEPSEEK_R1 = ((208, 2092), (792, 3432))

Specs = Iterable[RequestSpec]


def specs_of(name: str, seed: int, n: int = N, **options: object) -> tuple[RequestSpec, ...]:
    specs = generate(name, n=n, seed=seed, **options).specs  # type: ignore[arg-type]
    assert len(specs) == n
    assert [spec.arrival for spec in specs] == sorted(spec.arrival for spec in specs)
    return specs


def cv(specs: Specs, longest: float = np.inf) -> float:
    gaps = np.diff([spec.arrival for spec in specs])
    gaps = gaps[gaps < longest]
    return float(gaps.std() / gaps.mean())


def middle_and_high(values: Iterable[float]) -> list[float]:
    return np.percentile(list(values), [50, 90]).tolist()


def check_lengths(specs: Specs, target: tuple[tuple[int, int], tuple[int, int]]) -> None:
    prompt, output = target
    assert middle_and_high(spec.prompt_len or 0 for spec in specs) == pytest.approx(prompt, rel=0.05)
    assert middle_and_high(spec.output_len or 0 for spec in specs) == pytest.approx(output, rel=0.05)


def of(specs: Specs, client: str) -> list[RequestSpec]:
    return [spec for spec in specs if spec.client.startswith(client)]


def volumes(specs: Specs) -> np.ndarray:
    return np.array(sorted(Counter(spec.client for spec in specs).values(), reverse=True))


def jain(x: np.ndarray) -> float:
    return float(x.sum() ** 2 / (len(x) * (x**2).sum()))


def dispersion(specs: Specs, window: float) -> float:
    """Variance by mean of counts in windows."""
    times = np.array([spec.arrival for spec in specs])
    counts = np.histogram(times, np.arange(0, times[-1] // window + 1) * window)[0]
    return float(counts.var() / counts.mean())


@pytest.mark.parametrize("seed", SEEDS)
class TestChat:
    def test_lengths_and_arrivals(self, seed: int) -> None:
        specs = specs_of("chat", seed)
        check_lengths(specs, AZURE_CONV)
        assert cv(specs) == pytest.approx(1.0, rel=0.1)
        assert (N - 1) / specs[-1].arrival == pytest.approx(5.53, rel=0.001)
        assert {spec.deadline for spec in specs} == {2.0} and {spec.priority for spec in specs} == {0}

    def test_the_rate_swings_as_much_as_the_real_one(self, seed: int) -> None:
        """With 332 requests a minute and a swing of 30 %: 1 + 332 * 0.3² / 2 = 15.9, and 16 were measured."""
        specs = specs_of("chat", seed, 19_366)
        assert dispersion(specs, 60) == pytest.approx(16, rel=0.2)
        middle = len([spec for spec in specs if 0.4 < spec.arrival / specs[-1].arrival < 0.6])
        assert middle / len(specs) > 0.2 * 1.2  # the peak

    def test_sessions(self, seed: int) -> None:
        specs = specs_of("chat", seed)
        by_id = {spec.id: spec for spec in specs}
        turns = Counter(spec.session for spec in specs)
        assert set(turns.values()) == {1, 2, 3, 4}
        follow = [spec for spec in specs if spec.after is not None]
        assert len(follow) / N == pytest.approx(0.4, abs=0.02)
        for spec in follow:
            before = by_id[spec.after or ""]
            assert 5 <= spec.delay <= 60
            assert spec.arrival == pytest.approx(before.arrival + spec.delay, abs=1e-5)
            assert (before.session, before.client, before.turn) == (spec.session, spec.client, (spec.turn or 0) - 1)
            assert (spec.prompt_len or 0) >= (before.prompt_len or 0)
            repeated = sum(spec.prefix_lens[: len(before.prefix_lens)])
            assert spec.prefix_ids[: len(before.prefix_ids)] == before.prefix_ids and repeated == before.prompt_len

    def test_system_prompt_and_clients(self, seed: int) -> None:
        specs = specs_of("chat", seed)
        with_system = [spec for spec in specs if spec.prefix_ids[:1] == (0,)]
        assert len(with_system) / N == pytest.approx(0.6, abs=0.01)
        assert {spec.prefix_lens[0] for spec in with_system} == {512}
        share = volumes(specs) / N
        zipf = np.array([1 / rank for rank in range(1, 9)])
        assert share == pytest.approx(zipf / zipf.sum(), abs=0.03)


@pytest.mark.parametrize("seed", SEEDS)
class TestCode:
    def test_bursts(self, seed: int) -> None:
        specs = specs_of("code", seed)
        check_lengths(specs, AZURE_CODE)
        assert cv(specs, longest=10) == pytest.approx(3.2, rel=0.1)
        assert {spec.deadline for spec in specs} == {0.45}
        assert volumes(specs) == pytest.approx([500] * 4, abs=2)
        assert reuse(specs).found == 0

    def test_idle_times_in_as_many_rows_as_the_trace_has(self, seed: int) -> None:
        specs = specs_of("code", seed, 8819)
        gaps = np.diff([spec.arrival for spec in specs])
        idle = gaps[gaps > 10]
        assert len(idle) / specs[-1].arrival * 3600 == pytest.approx(20, abs=3)
        assert idle.max() < 205
        assert cv(specs) == pytest.approx(13.15, rel=0.1)

    def test_idle_times_do_not_shrink_with_the_load(self, seed: int) -> None:
        specs = specs_of("code", seed, rate=20.0, n=20_000)
        gaps = np.diff([spec.arrival for spec in specs])
        assert 10 < gaps.max() < 205 and gaps.max() > 60


@pytest.mark.parametrize("seed", SEEDS)
class TestBatch:
    def test_pile(self, seed: int) -> None:
        specs = specs_of("batch", seed, 4000)
        pile, talk = of(specs, "batch"), of(specs, "chat")
        assert len(pile) == len(talk) == 2000
        assert {spec.arrival for spec in pile} == {0.0}
        assert {(spec.priority, spec.session) for spec in pile} == {(10, None)}
        assert all((spec.deadline or 0) >= specs[-1].arrival for spec in pile)
        check_lengths(pile, ARXIV)
        check_lengths(talk, AZURE_CONV)
        assert {spec.priority for spec in talk} == {0}
        assert (len(talk) - 1) / (talk[-1].arrival - talk[0].arrival) == pytest.approx(5.53, rel=0.01)

    def test_waves(self, seed: int) -> None:
        specs = specs_of("batch", seed, 4000, variant="waves", rate=2.0)
        pile = of(specs, "batch")
        assert cv(pile) == pytest.approx(3.0, rel=0.1)
        assert len(specs) / specs[-1].arrival == pytest.approx(2.0, rel=0.01)


@pytest.mark.parametrize("seed", SEEDS)
class TestRag:
    def test_parts(self, seed: int) -> None:
        specs = specs_of("rag", seed)
        check_lengths(specs, RAGPULSE)
        assert cv(specs) == pytest.approx(1.1, rel=0.1)
        assert {spec.deadline for spec in specs} == {2.0}
        assert volumes(specs) == pytest.approx([1000, 200, 200, 200, 200, 200], abs=2)
        full = [spec for spec in specs if len(spec.prefix_ids) > 1]
        assert len(full) / N >= 0.8 and {len(spec.prefix_ids) for spec in full} == {7}
        assert {(spec.prefix_ids[0], spec.prefix_lens[0]) for spec in full} == {(0, 1461)}
        assert all(len(set(spec.prefix_ids)) == 7 for spec in full)
        assert np.mean([sum(spec.prefix_lens[1:]) for spec in specs]) == pytest.approx(1247, rel=0.1)

    def test_few_passages_are_used_most(self, seed: int) -> None:
        specs = specs_of("rag", seed)
        uses = Counter(id for spec in specs for id in spec.prefix_ids[1:])
        counts = np.array(sorted(uses.values(), reverse=True))
        top = counts.cumsum() / counts.sum()
        assert top[round(len(counts) * 0.01) - 1] == pytest.approx(0.18, abs=0.02)
        assert top[round(len(counts) * 0.1) - 1] == pytest.approx(0.59, abs=0.02)

    def test_places_vary_so_that_little_but_the_system_prompt_is_found(self, seed: int) -> None:
        specs = specs_of("rag", seed)
        total = reuse(specs, 16)
        system = sum(min(spec.prompt_len or 0, spec.prefix_lens[0]) // 16 * 16 for spec in specs)
        assert system * 0.99 <= total.found < system * 1.25
        first = Counter(spec.prefix_ids[1] for spec in specs if len(spec.prefix_ids) > 1)
        assert len(first) > 300


@pytest.mark.parametrize("seed", SEEDS)
class TestLongdoc:
    def test_documents_among_chat(self, seed: int) -> None:
        specs = specs_of("longdoc", seed, 10_000)
        docs = of(specs, "docs")
        assert len(docs) == 2000 and len(volumes(specs)) == 3
        check_lengths(docs, MOONCAKE)
        check_lengths(of(specs, "chat"), AZURE_CONV)
        assert cv(specs) == pytest.approx(1.0, rel=0.1)
        assert max(spec.prompt_len or 0 for spec in docs) > 85_400  # p99
        assert {spec.prefix_ids[0] for spec in docs} == {0}


@pytest.mark.parametrize("block", [16, 512])
def test_longdoc_reuse(block: int) -> None:
    """Documents of 100,000 tokens make single runs differ; larger blocks lose a little more at each prompt's end."""
    shares = [reuse(specs_of("longdoc", seed), block).share for seed in SEEDS]
    assert shares == pytest.approx([0.37] * len(SEEDS), abs=0.04)
    assert np.mean(shares) == pytest.approx(0.37, abs=0.025)


@pytest.mark.parametrize("seed", SEEDS)
class TestAgent:
    def test_calls(self, seed: int) -> None:
        specs = specs_of("agent", seed)
        calls = Counter(spec.session for spec in specs)
        assert middle_and_high(calls.values()) == pytest.approx([22, 30], rel=0.05)
        assert middle_and_high(spec.output_len or 0 for spec in specs) == pytest.approx([98, 191], rel=0.05)
        assert len(volumes(specs)) == 5
        firsts = [spec.prompt_len or 0 for spec in specs if spec.turn == 1 and len(spec.prefix_ids) == 1]
        assert np.median(firsts) == pytest.approx(1750, rel=0.05)

    def test_history_is_resent(self, seed: int) -> None:
        specs = specs_of("agent", seed)
        by_id = {spec.id: spec for spec in specs}
        lines: dict[str, list[RequestSpec]] = defaultdict(list)
        for spec in specs:
            if spec.prefix_ids:
                lines[spec.session or ""].append(spec)
        growth = []
        for line in lines.values():
            for before, spec in itertools.pairwise(line):
                assert spec.turn == (before.turn or 0) + 1
                assert spec.prefix_ids[:-1] == before.prefix_ids[: len(spec.prefix_ids) - 1]
                growth.append((spec.prompt_len or 0) - (before.prompt_len or 0))
                waits_for = by_id[spec.after or ""]
                assert waits_for is before or waits_for.after == before.id
        assert middle_and_high(growth) == pytest.approx([27, 695], rel=0.1)
        assert 0.85 <= reuse(specs, 16).share <= 0.93

    def test_helpers(self, seed: int) -> None:
        specs = specs_of("agent", seed)
        helpers = [spec for spec in specs if not spec.prefix_ids]
        lines = N - len(helpers)
        assert len(helpers) / 2 / lines == pytest.approx(0.1, abs=0.02)
        parents = Counter(spec.after for spec in helpers)
        assert set(parents.values()) == {2}
        waited = {spec.after for spec in specs} & {spec.id for spec in helpers}
        assert len(waited) == len(helpers) / 2  # the line goes on after one of the two

    def test_delays(self, seed: int) -> None:
        delays = np.array([spec.delay for spec in specs_of("agent", seed) if spec.after])
        tools = delays[delays >= 60]
        assert len(tools) / len(delays) == pytest.approx(0.05, abs=0.005)
        assert tools.max() <= 120
        quick = delays[delays < 60]
        assert quick.min() >= 0.5 and quick.max() <= 2.0
        assert np.median(delays) == pytest.approx(1.08, rel=0.05)

    def test_five_sessions_at_once(self, seed: int) -> None:
        """Each client's calls hang together: only its first one follows nothing."""
        specs = specs_of("agent", seed)
        roots = [spec for spec in specs if spec.after is None]
        assert sorted(spec.client for spec in roots) == [f"agent-{number}" for number in range(1, 6)]
        by_id = {spec.id: spec for spec in specs}
        assert all(by_id[spec.after].client == spec.client for spec in specs if spec.after)


@pytest.mark.parametrize("seed", SEEDS)
def test_reason(seed: int) -> None:
    specs = specs_of("reason", seed)
    check_lengths(specs, DEEPSEEK_R1)
    assert cv(specs) == pytest.approx(1.0, rel=0.1)
    assert len(volumes(specs)) == 4 and reuse(specs).found == 0
    assert PRESETS["reason"].tpot_s == 0.08


@pytest.mark.parametrize("seed", SEEDS)
class TestFair:
    @pytest.mark.parametrize("n", [1500, 2000, 3700])
    def test_arena(self, seed: int, n: int) -> None:
        specs = specs_of("fair", seed, n)
        check_lengths(specs, VTC_ARENA)
        assert cv(specs) == pytest.approx(1.10, rel=0.1)
        counts = volumes(specs)
        assert len(counts) == 27
        assert jain(counts) == pytest.approx(0.35, abs=0.02)
        assert (n - 1) / specs[-1].arrival == pytest.approx(2.5, rel=0.01)

    def test_own_times(self, seed: int) -> None:
        specs = specs_of("fair", seed, 1500, rate=0.25)
        assert [(spec.client, spec.arrival) for spec in specs[:2]] == [
            ("client-13", 0.0),
            ("client-2", pytest.approx(2.07938, rel=1e-3)),
        ]
        assert specs[-1].arrival == pytest.approx(6000, rel=1e-3)

    def test_hog(self, seed: int) -> None:
        specs = specs_of("fair", seed, variant="hog")
        assert Counter(spec.client for spec in specs) == pytest.approx({"hog": 1500, "tame": 500}, abs=2)
        check_lengths(specs, VTC_ARENA)


@pytest.mark.parametrize("seed", SEEDS)
class TestBursty:
    def test_one_client_is_most_of_it(self, seed: int) -> None:
        specs = specs_of("bursty", seed)
        check_lengths(specs, AZURE_CONV)
        counts = volumes(specs)
        assert len(counts) == 10
        assert jain(counts) == pytest.approx(0.11, abs=0.003)
        assert cv(of(specs, "bursty")) == pytest.approx(5.7, rel=0.1)

    def test_the_others_are_calm(self, seed: int) -> None:
        specs = specs_of("bursty", seed, 40_000)
        each = [cv(of(specs, f"calm-{number}")) for number in range(1, 10)]
        assert np.mean(each) == pytest.approx(1.2, rel=0.1)
