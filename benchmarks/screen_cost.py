"""What the live screen costs the engine, and how fast a key is answered while the engine is saturated.

    .venv/bin/python benchmarks/screen_cost.py [--seconds 1.5] [--pairs 20] [--presses 120] [--size 120x40]

One process, a real pseudo-terminal, the default model with all slots decoding. Phases with the screen at work and
phases with its timer stopped take turns (order ABBA), since a machine drifts more than the effect is large. The loss
is the median over pairs of neighbouring phases, of the time from one iteration's start to the next. Then keys are
pressed and timed from the write to the pseudo-terminal until the changed text comes out of it.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import itertools
import json
import os
import pty
import random
import statistics
import struct
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path
from typing import Any

SLOTS = 16


def child(asked: argparse.Namespace, results: Path) -> int:
    """In the pseudo-terminal: the app itself, with a task that stops and starts its timer."""
    from engine.request import Request
    from engine.sampling_params import SamplingParams
    from workbench.app import Options, WorkbenchApp
    from workbench.model.session import Session
    from workbench.screens.live import LiveScreen
    from workbench.session import RunOptions, build_session

    starts: list[float] = []
    held: list[Session] = []

    def load(progress: Any) -> Session:
        session = build_session(RunOptions(model=asked.model, no_workload=True), None, progress)
        engine = session.host._engine  # type: ignore[attr-defined]
        step = engine.step

        def timed(**arguments: Any) -> Any:
            begun = time.perf_counter()
            record = step(**arguments)
            if record is not None and record.executed:
                starts.append(begun)
            return record

        engine.step = timed
        rng = random.Random(1)
        requests = tuple(
            Request(
                f"r{n}",
                [rng.randrange(100, session.host.info.vocab_size) for _ in range(24)],
                SamplingParams(max_tokens=400, ignore_eos=True),
            )
            for n in range(SLOTS * 40)
        )
        held.append(session)
        return Session(session.host, session.encode, requests)

    app = WorkbenchApp(load, Options())

    async def measure() -> None:
        while not any(isinstance(screen, LiveScreen) for screen in app.screen_stack):
            await asyncio.sleep(0.1)
        live = next(screen for screen in app.screen_stack if isinstance(screen, LiveScreen))
        await asyncio.sleep(8)
        phases: list[tuple[bool, float, float]] = []
        for number in range(2 * asked.pairs):
            on = number % 4 in (0, 3)
            assert live._timer is not None
            (live._timer.resume if on else live._timer.pause)()
            await asyncio.sleep(0.2)  # what piled up is folded in before the clock starts
            begun = time.perf_counter()
            await asyncio.sleep(asked.seconds)
            phases.append((on, begun, time.perf_counter()))
        assert live._timer is not None
        live._timer.resume()
        seen = [
            (on, [b - a for a, b in itertools.pairwise(starts) if begun <= a and b <= end]) for on, begun, end in phases
        ]
        results.write_text(json.dumps({"phases": seen, "frame_ms": live.frame_ms, "fps": live.fps}))

    async def begin() -> None:
        app.measuring = asyncio.create_task(measure())  # type: ignore[attr-defined]

    app.call_later(begin)
    app.run()
    os._exit(0)


def read_all(master: int, chunks: list[tuple[float, bytes]]) -> None:
    while True:
        try:
            data = os.read(master, 65536)
        except OSError:
            return
        if not data:
            return
        chunks.append((time.perf_counter(), data))


def press_keys(master: int, chunks: list[tuple[float, bytes]], presses: int) -> list[float]:
    """Seconds from writing `m` until the KV map's title says the next mode."""
    latencies = []
    modes = [b"m: owner", b"m: refcount", b"m: cached"]
    for press in range(presses):
        time.sleep(random.uniform(0.15, 0.35))
        want, at = modes[(press + 1) % 3], len(chunks)
        begun = time.perf_counter()
        os.write(master, b"m")
        while time.perf_counter() - begun < 5:
            seen = chunks[at:]  # a read may end in the middle of the text
            if want in b"".join(data for _, data in seen):
                latencies.append(seen[-1][0] - begun)
                break
            time.sleep(0.001)
        else:
            raise SystemExit(f"no answer to a key within 5 s (press {press})")
    return latencies


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of the live screen.")
    parser.add_argument("--model", default="default")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--presses", type=int, default=120)
    parser.add_argument("--size", default="120x40")
    asked = parser.parse_args()
    columns, rows = map(int, asked.size.split("x"))
    results = Path(tempfile.mkdtemp()) / "results.json"
    pid, master = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        child(asked, results)
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    chunks: list[tuple[float, bytes]] = []
    threading.Thread(target=read_all, args=(master, chunks), daemon=True).start()
    limit = time.monotonic() + 60 + 2 * asked.pairs * (asked.seconds + 1)
    while not results.exists() and time.monotonic() < limit and os.waitpid(pid, os.WNOHANG) == (0, 0):
        time.sleep(0.2)
    if not results.exists():
        print(b"".join(data for _, data in chunks)[-2000:], file=sys.stderr)
        return 1
    latencies = sorted(press_keys(master, chunks, asked.presses)) if asked.presses else []
    os.write(master, b"q")
    os.waitpid(pid, 0)

    told = json.loads(results.read_text())
    medians = [(on, statistics.mean(gaps)) for on, gaps in told["phases"] if gaps]
    losses = []
    for (on, a), (other, b) in zip(medians[::2], medians[1::2], strict=False):
        if on != other:
            with_screen, without = (a, b) if on else (b, a)
            losses.append(with_screen / without - 1)
    result: dict[str, Any] = {
        "size": asked.size,
        "iteration_ms_off": round(1e3 * statistics.median(m for on, m in medians if not on), 2),
        "iteration_ms_on": round(1e3 * statistics.median(m for on, m in medians if on), 2),
        "loss_median_percent": round(100 * statistics.median(losses), 1),
        "loss_quartiles_percent": [round(100 * q, 1) for q in statistics.quantiles(losses, n=4)],
        "pairs": len(losses),
        "frame_ms": round(told["frame_ms"], 2),
        "fps": told["fps"],
    }
    if latencies:
        result["key_ms"] = {
            name: round(1e3 * latencies[min(len(latencies) - 1, int(q * len(latencies)))], 1)
            for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
        }
    print(
        f"iteration {result['iteration_ms_off']} ms without the screen, {result['iteration_ms_on']} ms with it: "
        f"loss {result['loss_median_percent']} % (median of {len(losses)} pairs, "
        f"quartiles {result['loss_quartiles_percent']})"
    )
    if latencies:
        print(f"key to changed text: {result['key_ms']} ms over {len(latencies)} presses")
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
