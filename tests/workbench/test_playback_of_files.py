"""Playback of recordings on disk, plain and packed, against the history of the same run as it was seen live."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.host import EngineInfo
from engine.plan import Plan
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.fakes import fake_engine
from tests.traces.exports.runs import random_run as crowded_run
from tests.traces.recording.runs import assert_same_view, info_of, random_run
from traces.recording import Header, Recorder, Recording
from traces.recording.pack import pack
from workbench.model.history import History
from workbench.model.letters import ALPHABET, NONE_LEFT
from workbench.model.playback import MOST_WINDOW, Playback

SERIES = ("decode", "prefill", "recompute", "budget", "outputs", "ends")
Made = tuple[EngineInfo, list[Iteration]]


def rebuilt_runs(seed: int) -> Made:
    """Swaps, aborts, and half-way another engine with bigger blocks in a smaller pool."""
    run = crowded_run(seed, count=150)
    assert any(it.rebuilt is not None for it in run.records)
    return run.info, run.records


def odd_runs(seed: int, batching: str = "continuous") -> Made:
    config, records = random_run(seed, 500, batching=batching)
    return info_of(config), records


def static_batches(seed: int) -> Made:
    info, records = odd_runs(seed, "static")
    assert any(it.batch for it in records)
    return info, records


def long_queue(seed: int) -> Made:
    """10,000 wait for four places: far more than there are letters, which they get when they are admitted."""
    engine, executor = fake_engine(num_blocks=64, block_size=4, max_num_seqs=4, enable_prefix_caching=False)
    executor.reads = False

    def hook(plan: Plan) -> None:
        engine.clock.advance(0.01)  # type: ignore[attr-defined]

    executor.hook = hook
    info = info_of(engine.config)
    for number in range(10_000):
        params = SamplingParams(max_tokens=1 + number % 5, ignore_eos=True)
        engine.submit(Request(f"r{number}", [number % 200, 7, 8], params, client="abc"[number % 3]))
    records = [it for _ in range(400) if (it := engine.step()) is not None]
    assert records[-1].num_waiting > 8_000
    return info, records


def record(path: Path, made: Made, *, packed: bool) -> Recording:
    info, records = made
    with Recorder(path, Header.of(info, now=0.0)) as recorder:
        for it in records:
            recorder.add(it)
    return Recording.open(pack(path).path if packed else path)


def live(made: Made) -> History:
    info, records = made
    config = info.config
    history = History(
        config.num_blocks, config.block_size, config.values(), 1 << 20, model=info.model, dtype=info.dtype
    )
    for it in records:
        history.append(it)
    return history


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("make", "seed"),
    [(rebuilt_runs, 0), (rebuilt_runs, 1), (odd_runs, 2), (odd_runs, 3), (static_batches, 4), (long_queue, 5)],
)
def test_what_is_shown_is_what_was_seen(make: Callable[[int], Made], seed: int, packed: bool, tmp_path: Path) -> None:
    made = make(seed)
    recording, history = record(tmp_path / "run", made, packed=packed), live(made)
    playback = Playback(recording)
    assert (playback.first_step, playback.last_step) == (history.first_step, history.last_step)
    last = history.last_step
    assert recording.marks.tolist() == history.marks_between(1, last + 1).tolist()
    rng = random.Random(seed)
    step = 1
    for _ in range(30):
        step = rng.choice([rng.randint(1, last), max(1, min(last, step + rng.choice([-10, -1, 1, 10]))), last, 1])
        before = rng.randint(0, 120)
        playback.show(step, step - before - 128, step + 5)
        seen = history.live if step == last else history.view_at(step)
        assert_same_view(playback.live, seen)
        first = max(1, step - before)
        for at in range(first, min(last, step + 5) + 1):
            assert playback.record_at(at) == history.record_at(at)
            for name in SERIES:
                assert getattr(playback, name)[at] == getattr(history, name)[at], name
        # what ended, or was admitted, before the picture began may have another place in it, or none
        alive = {*seen.running, *seen.queued}
        order = [id for id in playback.order(playback.live) if id in alive]
        assert set(order) == {id for id in history.order(seen) if id in alive}
        assert make is not long_queue or NONE_LEFT not in map(playback.letters.of, seen.running)
        for id in order:
            assert playback.rows[id].cells(first, step + 1, step) == history.rows[id].cells(first, step + 1, step)
            assert [one for one in playback.preemptions_of(id, step) if one[0] >= first] == [
                one for one in history.preemptions_of(id, step) if one[0] >= first
            ]
        within = [[one for one in held.knob_changes if first <= one[0] <= step] for held in (playback, history)]
        assert within[0] == within[1]
        assert playback.build_at(step)[1:] == history.build_at(step)[1:]


def test_latencies_are_those_of_the_steps_before_the_cursor(tmp_path: Path) -> None:
    """Not of what happens to be loaded, and nothing of the future."""
    made = rebuilt_runs(3)
    _, records = made
    recording = record(tmp_path / "run", made, packed=False)
    arrival = {new.id: new.arrival for it in records for new in it.arrived}

    def expected(begin: int, step: int) -> tuple[list[float], list[float]]:
        first, between, last = [], [], {}
        for it in records:
            for token in it.tokens:
                if begin <= it.step <= step:
                    if token.id in last:
                        between.append(it.t_end - last[token.id])
                    else:
                        first.append(it.t_end - arrival[token.id])
                last[token.id] = it.t_end
        return sorted(first), sorted(between)

    playback = Playback(recording)
    rng = random.Random(4)
    for _ in range(40):
        step = rng.choice([1, 2, playback.last_step, rng.randint(1, playback.last_step)])
        begin = max(1, step - rng.randint(0, 300))
        playback.show(step, begin, step + rng.randint(0, 300))
        latency = playback.latency
        assert (sorted(latency._all.first), sorted(latency._all.gaps)) == expected(begin, step)


def test_a_long_way_forwards_and_back(tmp_path: Path) -> None:
    """Much more than a window: what is forgotten on the way is loaded again."""
    engine, executor = fake_engine(num_blocks=64, block_size=4, max_num_seqs=2, enable_prefix_caching=False)
    executor.reads = False
    for number in range(600):
        engine.submit(Request(f"r{number}", [7, 8], SamplingParams(max_tokens=30, ignore_eos=True)))
    records = []
    while engine.has_work():
        it = engine.step()
        assert it is not None
        records.append(it)
    at = {it.step: it for it in records}
    playback = Playback(record(tmp_path / "run", (info_of(engine.config), records), packed=False))
    assert playback.last_step > 2 * MOST_WINDOW
    steps = [*range(1, playback.last_step, 61), *range(playback.last_step, 1, -97)]
    for step in steps:
        playback.show(step, step - 80, step + 5)
        assert playback.live.step == step and playback.record_at(max(1, step - 80)) == at[max(1, step - 80)]


def test_a_step_among_ten_thousand_waiting_is_there_at_once(tmp_path: Path) -> None:
    made = long_queue(0)
    playback = Playback(record(tmp_path / "run", made, packed=False))
    rng = random.Random(1)
    taken = []
    for _ in range(12):
        step = rng.randint(1, playback.last_step)
        begun = time.thread_time()
        playback.show(step, step - 228, step)
        taken.append(time.thread_time() - begun)
    assert sorted(taken)[6] < 1.0  # far above what it takes, for machines that are busy


def test_a_request_has_the_same_letter_wherever_it_is_looked_at(tmp_path: Path) -> None:
    """As long as its own is free: here no more are alive at once than there are letters."""
    engine, executor = fake_engine(num_blocks=64, block_size=4, max_num_seqs=6)
    executor.reads = False
    executor.hook = lambda plan: engine.clock.advance(0.01)  # type: ignore[attr-defined]
    info = info_of(engine.config)
    records = []
    for number in range(300):
        engine.submit(Request(f"r{number}", [number % 200, 7, 8], SamplingParams(max_tokens=5, ignore_eos=True)))
        records += [it for _ in range(1 + number % 2) if (it := engine.step()) is not None]
    playback = Playback(record(tmp_path / "run", (info, records), packed=False))
    rng = random.Random(7)
    for _ in range(60):
        step = rng.randint(1, playback.last_step)
        playback.show(step, step - rng.randint(0, 60), step + rng.randint(0, 20))
        for id in playback.live.running:
            assert playback.letters.of(id) == ALPHABET[int(id[1:]) % len(ALPHABET)]
