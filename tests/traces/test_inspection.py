"""Figures of traces against plain arithmetic over the same values, and against what is known of public traces."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics

import numpy as np
import pytest

from traces.arrival_stats import Arrivals
from traces.client_stats import ClientTally
from traces.inspection import Inspection
from traces.reuse import Reuse
from traces.rows import NO_TIME, Chunk, Ints, Row
from traces.tally import KeyCounts, Lengths

SECOND = 1_000_000_000


def times(*seconds: float) -> Ints:
    return np.array([round(value * SECOND) for value in seconds], np.int64)


def quantile(values: list[int], percent: float) -> float:
    """Linear interpolation between order statistics, as in the definition."""
    values = sorted(values)
    place = percent / 100 * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)


@pytest.mark.parametrize("most", [5, 3000, 5_000_000])
def test_percentiles_are_exact(most: int) -> None:
    draw = random.Random(most)
    values = [draw.randint(0, most) for _ in range(1237)]
    tally = Lengths()
    for start in range(0, len(values), 100):
        tally.add(np.array(values[start : start + 100], np.int64))
    for percent in (0, 1, 50, 90, 95, 99, 100):
        assert tally.percentile(percent) == pytest.approx(quantile(values, percent), rel=1e-12)
    summary = tally.summary()
    assert (summary["n"], summary["max"]) == (len(values), max(values))
    assert summary["mean"] == pytest.approx(statistics.fmean(values), rel=1e-12)
    assert tally.over(most // 2) == sum(value > most // 2 for value in values)


def test_no_lengths_and_one() -> None:
    tally = Lengths()
    assert tally.summary() == {"n": 0, **dict.fromkeys(("p50", "p90", "p95", "p99", "mean", "max"))}
    assert tally.histogram() == []
    tally.add(np.array([7], np.int64))
    assert tally.summary() == {"n": 1, "p50": 7, "p90": 7, "p95": 7, "p99": 7, "mean": 7, "max": 7}


def test_histogram_doubles_and_has_no_hole() -> None:
    tally = Lengths()
    tally.add(np.array([1, 2, 3, 3, 4, 7, 40], np.int64))
    assert [tuple(bin) for bin in tally.histogram()] == [
        (1, 1, 1),
        (2, 3, 3),
        (4, 7, 2),
        (8, 15, 0),
        (16, 31, 0),
        (32, 63, 1),
    ]
    tally.add(np.array([0], np.int64))
    assert tally.histogram()[0] == (0, 0, 1)


def test_keys_are_counted_up_to_a_limit() -> None:
    counts = KeyCounts(most=3)
    counts.add(np.array([5, -2, 5], np.int64))
    counts.add(np.array([-2, 9], np.int64))
    keys, rows = counts.table()
    assert dict(zip(keys.tolist(), rows.tolist(), strict=True)) == {-2: 2, 5: 2, 9: 1}
    counts.add(np.array([10], np.int64))
    assert len(counts.table()[0]) == 0 and counts.full


# By hand: gaps 1 1 2 4 s have mean 2 and variance 1.5.
def test_cv_by_hand() -> None:
    arrivals = Arrivals()
    arrivals.add(times(10, 11))
    arrivals.add(times(12, 14, 18))
    figures = arrivals.figures()
    assert figures.cv == pytest.approx(math.sqrt(1.5) / 2)
    assert (figures.n, figures.span_s, figures.rate_per_s) == (5, 8, 5 / 8)
    assert figures.first_ns == 10 * SECOND and figures.resolution_s == 1


# Whole seconds 0..7 hold 1 1 1 0 1 0 0 0: mean 1/2, variance 1/4. There is no second whole window of 10 s.
def test_dispersion_by_hand() -> None:
    arrivals = Arrivals()
    arrivals.add(times(10, 11, 12, 14, 18))
    assert arrivals.figures().dispersion == {1: pytest.approx(0.5), 10: None, 60: None}


@pytest.mark.parametrize("shuffled", [0, 1])
def test_arrivals_against_plain_python(shuffled: int) -> None:
    draw = random.Random(3)
    clock, stamps = 1_700_000_000.25, []
    for _ in range(3000):
        clock += draw.expovariate(2.0) * (8 if draw.random() < 0.1 else 1)
        stamps.append(clock)
    ns = [round(stamp * SECOND) for stamp in stamps]
    order = list(ns)
    if shuffled:
        draw.shuffle(order)
    arrivals = Arrivals()
    for start in range(0, len(order), 700):
        arrivals.add(np.array(order[start : start + 700], np.int64))
    figures = arrivals.figures()
    gaps = [(b - a) / SECOND for a, b in itertools.pairwise(ns)]
    assert figures.cv == pytest.approx(statistics.pstdev(gaps) / statistics.fmean(gaps), rel=1e-9)
    assert figures.inversions == sum(b < a for a, b in itertools.pairwise(order))
    for window in (1, 10, 60):
        whole = (ns[-1] - ns[0]) // (window * SECOND)
        counts = [0] * whole
        for stamp in ns:
            if (place := (stamp - ns[0]) // (window * SECOND)) < whole:
                counts[place] += 1
        expected = statistics.pvariance(counts) / statistics.fmean(counts)
        # windows of a shuffled file begin up to a second early, where its first row lies
        assert figures.dispersion[window] == pytest.approx(expected, rel=0.15 if shuffled else 1e-9)


def test_rows_far_out_of_order_leave_no_cv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.arrival_stats.LATE", 4)
    monkeypatch.setattr("traces.arrival_stats.TOGETHER", 8)
    arrivals = Arrivals()
    arrivals.add(times(1, 3, 2, 4, 5))
    assert arrivals.figures().cv == 0
    late = Arrivals()
    late.add(times(*range(10, 30)))
    late.add(times(1, 31))
    figures = late.figures()
    assert figures.cv is None and figures.first_ns == SECOND and "out of order" in figures.notes[0]


def test_no_times() -> None:
    arrivals = Arrivals()
    arrivals.add(np.array([NO_TIME, NO_TIME], np.int64))
    figures = arrivals.figures()
    assert (figures.n, figures.span_s, figures.rate_per_s, figures.cv) == (0, None, None, None)
    arrivals.add(times(5))
    assert arrivals.figures().rate_per_s is None


# Mooncake stamps batches every 3 s, a millisecond off at times (its 12,031 rows share 1,180 stamps).
def test_quantised_stamps_have_no_cv() -> None:
    draw = random.Random(1)
    stamps = [3 * batch + draw.choice((0, 0, 0, 0.001)) for batch in range(200) for _ in range(draw.randint(1, 20))]
    arrivals = Arrivals()
    arrivals.add(times(*sorted(stamps)))
    figures = arrivals.figures()
    assert figures.cv is None
    assert figures.quantum_s == pytest.approx(3, abs=0.002)
    assert any("quantised" in note for note in figures.notes)


def test_even_gaps_are_not_quantised() -> None:
    arrivals = Arrivals()
    arrivals.add(times(*range(100)))
    assert arrivals.figures().cv == 0 and arrivals.figures().quantum_s is None


def test_clients() -> None:
    tally = ClientTally(most=2)
    tally.add([{"client": "a"}, {"client": "b"}, {"client": "a"}], np.array([10, 20, 5]))
    # Jain of rows 2, 1: 3^2 / (2 * (4 + 1))
    summary = tally.summary()
    assert (summary["count"], summary["given"], summary["jain"]) == (2, 3, pytest.approx(0.9))
    assert summary["top"][0] == {
        "client": "a",
        "rows": 2,
        "share": pytest.approx(2 / 3),
        "tokens": 15,
        "token_share": pytest.approx(15 / 35),
    }
    tally.add([{"client": "c"}, {"client": "d"}], np.array([1, 1]))
    assert tally.overflow
    assert {row["client"]: row["rows"] for row in tally.summary()["top"]} == {"a": 2, "b": 1, "(others)": 2}


def reuse_by_hand(rows: list[tuple[list[int], list[int], int]]) -> tuple[int, int, int]:
    """(blocks, hit blocks, hit tokens) with a set of chains."""
    seen: set[tuple[tuple[int, int], ...]] = set()
    blocks = hit_blocks = hit_tokens = 0
    for ids, lens, prompt in rows:
        chain: tuple[tuple[int, int], ...] = ()
        left = prompt
        for id, length in zip(ids, lens, strict=True):
            covered = min(length, left)
            left -= covered
            chain += ((id, covered),)
            if covered:
                blocks += 1
                hit_blocks += chain in seen
                hit_tokens += covered * (chain in seen)
            seen.add(chain)
    return blocks, hit_blocks, hit_tokens


@pytest.mark.parametrize("even", [True, False])
def test_reuse_against_a_set_of_chains(even: bool) -> None:
    draw = random.Random(5)
    length_of = {id: 16 if even else draw.randint(1, 40) for id in range(40)}
    rows, more = [], []
    for _ in range(400):
        ids = [draw.randint(0, 3), *(draw.randint(0, 39) for _ in range(draw.randint(0, 5)))]
        lens = [length_of[id] for id in ids]
        prompt = max(1, sum(lens) - draw.randint(0, 20)) if draw.random() < 0.5 else sum(lens) + 7
        rows.append((ids, lens, prompt))
        more.append({"prefix_ids": tuple(ids), "prefix_lens": (16,) if even else tuple(lens)})
    reuse = Reuse()
    for start in range(0, 400, 64):
        part = slice(start, start + 64)
        reuse.add(more[part], np.array([prompt for _, _, prompt in rows[part]], np.int64))
    figures = reuse.figures()
    assert (figures.blocks, figures.hit_blocks, figures.hit_tokens) == reuse_by_hand(rows)
    assert figures.block_sizes == ((16,) if even else ()) and figures.one_in == 1


def test_reuse_order_position_and_wide_ids() -> None:
    reuse = Reuse()
    rows = [{"prefix_ids": ids, "prefix_lens": (4,)} for ids in ((1, 2), (2, 1), (1, 3), (1 << 63, 5), (1 << 63, -5))]
    reuse.add([*rows, {}], np.array([8, 8, 8, 8, 8, 8], np.int64))
    # only 1 at the front of the third row, and 2^63 at the front of the last
    assert (reuse.figures().hit_blocks, reuse.figures().hit_tokens, reuse.figures().rows) == (2, 8, 5)


def test_reuse_stays_small_and_close() -> None:
    draw = random.Random(9)
    exact, small = Reuse(), Reuse(most=500)
    for _ in range(20):
        more = [{"prefix_ids": (draw.randint(0, 5000),), "prefix_lens": (16,)} for _ in range(1000)]
        for reuse in (exact, small):
            reuse.add(more, np.full(1000, 16))
    assert small.figures().one_in > 4
    assert small.figures().hit_tokens == pytest.approx(exact.figures().hit_tokens, rel=0.15)


def test_inspection_of_mixed_rows() -> None:
    rows = [
        Row(t_ns=0, prompt_len=100, output_len=10, more={"client": "a", "session": "s", "turn": 0}),
        Row(t_ns=SECOND, prompt_len=300, output_len=40, more={"client": "b", "session": "s", "turn": 1, "after": "x"}),
        Row(t_ns=2 * SECOND, more={"prompt": "123456789", "max_tokens": 64}),
        Row(t_ns=3 * SECOND, more={"messages": (("system", "1234"), ("user", "12345678")), "output_len": None}),
        Row(t_ns=4 * SECOND, output_len=5, more={"prompt_ids": (1, 2, 3)}),
        Row(t_ns=4 * SECOND, prompt_len=999, failed=True),
    ]
    inspection = Inspection(max_model_len=150)
    inspection.add(Chunk.of(range(1, 7), rows))
    figures = inspection.figures()
    assert (figures["prompt"]["n"], figures["prompt"]["max"], figures["prompt"]["mean"]) == (5, 300, 409 / 5)
    assert (figures["output"]["n"], figures["output"]["max"]) == (3, 40)
    assert figures["in_out_ratio"] == pytest.approx(403 / 55)
    assert figures["arrivals"]["n"] == 6 and figures["rate_per_s"] == 1.5
    assert figures["sessions"] == {
        "count": 1,
        "rows": 2,
        "turns": {"p50": 2, "p90": 2, "mean": 2, "max": 2},
        "follow_ups": 1,
    }
    assert figures["text"] == {"rows": 2, "estimated": True}
    told = " | ".join(inspection.warnings())
    assert "1 rows need more than max_model_len 150 (the longest 340 tokens)" in told
    assert "1 rows give a limit" in told and "1 rows tell no output length" in told and "characters / 4" in told
    counted = Inspection(measure=lambda row: 7)
    counted.add(Chunk.of([1], [rows[2]]))
    assert counted.figures()["prompt"]["max"] == 7 and not counted.figures()["text"]["estimated"]


def test_nothing_at_all_is_plain_data() -> None:
    figures = Inspection().figures()
    assert json.loads(json.dumps(figures)) == figures
    assert figures["prompt"]["n"] == 0 and figures["prefix"]["token_share"] is None
