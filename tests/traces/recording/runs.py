"""Runs to record: random ones over the model-free engine, and how views are compared."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from engine.clock import ManualClock
from engine.config import EngineConfig
from engine.host import EngineInfo
from engine.records import Iteration
from engine.request import Request, RequestStatus
from engine.sampling_params import SamplingParams
from engine.view import EngineView
from tests.engine.fakes import fake_engine
from traces.recording import Header, Recorder

SAME = (
    "num_blocks", "block_size", "knobs", "knob_version", "running", "peak_used", "owners", "refs", "cached",
    "free_blocks", "off_blocks", "free_cpu_blocks", "swapped", "batch", "storm", "paused", "pace", "planned",
    "num_waiting", "last", "seq", "step", "preemptions", "rejected", "finished", "fault", "waiting_head",
)  # fmt: skip


def info_of(config: EngineConfig, **fields: Any) -> EngineInfo:
    values: dict[str, Any] = {
        "model": "made-up", "device": "cpu", "dtype": "float32", "threads": 1, "config": config, "vocab_size": 259,
        "kv_bytes": 0, "parameters": 0,
    }  # fmt: skip
    return EngineInfo(**(values | fields))


def header_of(config: EngineConfig, **fields: Any) -> Header:
    return Header.of(info_of(config, **fields), now=0.0)


def fresh_view(config: EngineConfig) -> EngineView:
    return EngineView(config.num_blocks, config.block_size, config.values())


def random_run(seed: int, steps: int = 400, **asked: Any) -> tuple[EngineConfig, list[Iteration]]:
    """Arrivals, aborts, knob changes, pauses and refusals under pressure for blocks, with whatever settings."""
    rng = random.Random(seed)
    clock = ManualClock()
    settings = {
        "num_blocks": rng.randrange(8, 40), "block_size": rng.choice([1, 2, 4]),
        "enable_prefix_caching": rng.random() < 0.7, "policy": rng.choice(["fcfs", "priority", "srpt", "fair"]),
        "preemption_mode": rng.choice(["recompute", "swap"]),
        "batching": rng.choice(["continuous", "continuous", "static"]), "max_num_seqs": rng.choice([2, 4, 8]),
        "max_num_batched_tokens": 16, "scheduler_reserve_full_isl": False, "num_cpu_blocks": 8,
    }  # fmt: skip
    engine, _ = fake_engine(clock, **(settings | asked))
    config = engine.config
    records: list[Iteration] = []
    count = 0
    for _ in range(steps):
        for _ in range(rng.randrange(3)):
            count += 1
            prompt = [rng.randrange(3) for _ in range(rng.randrange(1, 20))]
            params = SamplingParams(max_tokens=rng.randrange(1, 12), stop=("AB", "q"), stop_token_ids=(50,))
            arrival = rng.choice([None, None, clock.now() + 0.7])
            engine.submit(
                Request(
                    f"r{count}", prompt, params, priority=rng.randrange(3), client=rng.choice("abc"), arrival=arrival,
                    deadline=rng.choice([None, 0.3]), prompt_text=rng.choice([None, "ask ünï"]),
                )
            )  # fmt: skip
        if rng.random() < 0.1:
            engine.abort(f"r{rng.randrange(count + 1)}")
        if rng.random() < 0.03:
            engine.try_knob("num_blocks", rng.randrange(4, config.num_blocks))
        if rng.random() < 0.02:
            engine.try_knob("max_num_seqs", rng.choice([1, 3, 0]))
        engine.paused = rng.random() < 0.02
        clock.advance(rng.choice([0.001, 0.25, 1 / 3]))
        it = engine.step(run=not engine.paused)
        if it is not None:
            records.append(it)
    return config, records


def record(
    path: Path, config: EngineConfig, records: list[Iteration], *, start: int = 0, close: bool = True, **options: Any
) -> EngineView:
    """Write them, from record `start` on; the view before that record."""
    view = fresh_view(config)
    for it in records[:start]:
        view.apply(it)
    recorder = Recorder(path, header_of(config), view=view.copy() if start else None, **options)
    for it in records[start:]:
        recorder.add(it)
    if close:
        recorder.close()
    return view


def assert_same_view(found: EngineView, expected: EngineView) -> None:
    """All but requests that have ended."""
    for name in SAME:
        assert getattr(found, name) == getattr(expected, name), name
    assert list(found.queued) == list(expected.queued)
    for id in (*expected.running, *expected.queued):
        assert found.requests[id] == expected.requests[id]
        assert found.requests[id].text == expected.requests[id].text
    assert living(found) == living(expected)
    assert found.waiting_ids() == expected.waiting_ids()


def living(view: EngineView) -> list[str]:
    return [id for id, request in view.requests.items() if request.status is not RequestStatus.FINISHED]
