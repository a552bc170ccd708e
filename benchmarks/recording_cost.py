"""What recording costs and how fast a long recording opens: microseconds and bytes an iteration, seeks.

    python benchmarks/recording_cost.py                                      100,000 iterations of 64 running requests
    python benchmarks/recording_cost.py --iterations 1000000 --waiting 10000
    python benchmarks/recording_cost.py --no-tokens --keep long.wbrec.jsonl

A real `Engine` (scheduler, pool with prefix caching, text) over an executor that takes its tokens from a list, on a
clock that ticks a few milliseconds an iteration. Answers are 100 to 300 tokens long, prompts 16 to 400; whoever ends is
replaced at once, and `--waiting` requests wait behind the running ones. The engine runs for `--run` iterations and what
is left then ends; its records are recorded over and over, later each time. The file goes to a temporary folder.

encode: microseconds of processor time of `Recorder.add` per record, the write included. open and seek: milliseconds of
`Recording.open` and of `view_at` at random iterations; "again": the same ones once more. The last line is JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from engine.clock import ManualClock
from engine.collector import keep_collector_quiet
from engine.config import EngineConfig
from engine.engine import Engine
from engine.executors.base import Sampled
from engine.host import EngineInfo
from engine.plan import Plan
from engine.records import Iteration
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer
from traces.recording import Header, Recorder, Recording


class ListExecutor:
    """Tokens from a list, a made-up time."""

    def __init__(self, clock: ManualClock, vocabulary: int) -> None:
        rng = random.Random(1)
        self._clock = clock
        self._rng = rng
        self._tokens = [min(int(rng.paretovariate(0.7)), vocabulary - 1) for _ in range(1 << 16)]
        self._at = 0

    def execute(self, plan: Plan) -> Sampled:
        forward = self._rng.randrange(4_000_000, 9_000_000) / 1e9
        self._clock._now = round((self._clock.now() + forward) * 1e9) / 1e9
        out: list[int | None] = []
        for samples in plan.samples:
            self._at = (self._at + 1) % len(self._tokens)
            out.append(self._tokens[self._at] if samples else None)
        return Sampled(out, 0.0, forward, 0.0)

    def copy_blocks(self, out: Any, back: Any) -> int:
        return 0

    def release(self, id: str) -> None:
        pass


def generate(path: Path, args: argparse.Namespace) -> dict[str, float]:
    clock = ManualClock()
    size = 40_000
    config = EngineConfig.resolve(
        {"max_num_seqs": args.running, "num_blocks": 64 * args.running, "max_num_batched_tokens": 512,
         "max_model_len": 900},
    )  # fmt: skip
    pieces = {token: f" w{token}" for token in range(size)}
    engine = Engine(config, ListExecutor(clock, size), words(pieces), clock)
    info = EngineInfo("made-up", "cpu", "float32", 1, config, size, 0, 0)
    rng = random.Random(2)
    count = 0

    def submit() -> None:
        nonlocal count
        shared = [7] * (64 if rng.random() < 0.5 else 0)
        prompt = shared + [rng.randrange(100, size) for _ in range(rng.randrange(16, 400))]
        params = SamplingParams(max_tokens=rng.randrange(100, 300), ignore_eos=True)
        engine.submit(Request(f"req-{count}", prompt, params, client=f"c{count % 9}"))
        count += 1

    for _ in range(args.running + args.waiting):
        submit()
    records = []
    while engine.has_work():
        it = engine.step()
        assert it is not None
        records.append(it)
        if it.step < args.run:
            for _ in it.finished:
                submit()
        elif it.step == args.run:
            for request in list(engine.scheduler.waiting):
                engine.abort(request.id)
    taken: list[float] = []
    said = time.monotonic()
    steps, seq, begin = 0, 0, 0.0
    with Recorder(path, Header.of(info, now=0.0), tokens=not args.no_tokens, force=True) as recorder:
        while steps < args.iterations:
            for it in records:
                it = later(it, seq, steps, begin)
                begun = time.thread_time()
                recorder.add(it)
                taken.append(time.thread_time() - begun)
                if time.monotonic() - said > 20:
                    said = time.monotonic()
                    print(f"  {it.step} of {args.iterations} iterations", flush=True)
                if it.step >= args.iterations:
                    break
            seq, steps, begin = it.seq + 1, it.step, it.t_end
    taken.sort()
    return {
        "encode_us_p50": 1e6 * taken[len(taken) // 2],
        "encode_us_mean": 1e6 * statistics.fmean(taken),
        "encode_us_p99": 1e6 * taken[len(taken) * 99 // 100],
        "bytes_per_iteration": path.stat().st_size / steps,
    }


def later(it: Iteration, seq: int, steps: int, begin: float) -> Iteration:
    """The same record in a later round: its ids are used again."""

    def at(time: float) -> float:
        return round((time + begin) * 1e9) / 1e9

    return dataclasses.replace(
        it,
        seq=it.seq + seq,
        step=it.step + steps,
        t_start=at(it.t_start),
        t_end=at(it.t_end),
        arrived=tuple([one._replace(arrival=at(one.arrival)) for one in it.arrived]),
    )


def words(pieces: dict[int, str]) -> Tokenizer:
    """A tokenizer whose every token is a word of its own."""

    class Words(Tokenizer):
        def detokenizer(self) -> Any:
            return Plain()

    class Plain:
        def push(self, token: int) -> str:
            return pieces[token]

        def finish(self) -> str:
            return ""

        plain: dict[int, str] = pieces

    return Words(None, {len(pieces) - 1: ""}, frozenset(), None)


def kinds(path: Path) -> dict[str, float]:
    """Bytes by kind of line."""
    sizes: dict[str, float] = {}
    with path.open("rb") as file:
        for line in file:
            kind = line[6 : line.index(b'"', 6)].decode()
            sizes[kind] = sizes.get(kind, 0) + len(line)
    return sizes


def seeks(path: Path, number: int) -> dict[str, float]:
    begun = time.perf_counter()
    recording = Recording.open(path)
    opened = time.perf_counter() - begun
    rng = random.Random(3)
    first, again = [], []
    for _ in range(number):
        step = rng.randrange(recording.first_step, recording.last_step + 1)
        for times in (first, again):
            begun = time.perf_counter()
            view = recording.view_at(step)
            times.append(1e3 * (time.perf_counter() - begun))
            assert view.step == step
    first.sort()
    again.sort()
    return {
        "open_ms": 1e3 * opened,
        "seek_ms_p50": first[len(first) // 2],
        "seek_ms_p99": first[len(first) * 99 // 100],
        "again_ms_p50": again[len(again) // 2],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--iterations", type=int, default=100_000)
    parser.add_argument("--run", type=int, default=4000, help="iterations of the engine itself")
    parser.add_argument("--running", type=int, default=64)
    parser.add_argument("--waiting", type=int, default=0)
    parser.add_argument("--no-tokens", action="store_true")
    parser.add_argument("--seeks", type=int, default=200)
    parser.add_argument("--keep", type=Path, help="where the recording is left")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or Path(folder) / "bench.wbrec.jsonl"
        keep_collector_quiet()  # as a run does
        gc.freeze()
        found: dict[str, float] = generate(path, args)
        by_kind = kinds(path)
        found |= seeks(path, args.seeks)
        found["file_mb"] = path.stat().st_size / 1e6
        for kind, size in sorted(by_kind.items(), key=lambda entry: -entry[1]):
            print(f"{kind:4} {size / args.iterations:8.1f} B/iteration")
            found[f"bytes_{kind}"] = size / args.iterations
    for name, value in found.items():
        print(f"{name:22} {value:10.1f}")
    print(json.dumps({name: round(value, 2) for name, value in found.items()}))


if __name__ == "__main__":
    main()
