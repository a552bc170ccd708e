"""What an iteration costs besides the model: microseconds by phase, by running and waiting requests.

    make bench-scheduling                                          fcfs, all cases
    make bench-scheduling ARGS='--policies fair,sjf --running 256'
    make bench-scheduling ARGS='--soak 100000'                     memory over many iterations instead

A real `Engine` (scheduler, block pool with prefix caching, `BatchRows`, text output, records) over an executor that
computes nothing: it packs its inputs as the real one does and takes its tokens from a list. Text is made with the
byte tokenizer of the tiny model, or with the default model's own (`--tokenizer default`).

The state is a steady one: answers are 100 to 300 tokens long, and whoever ends is replaced at once, so a running
request in 200 ends in each iteration and one in 16 takes a new block. "decode": prompts of 16 tokens. "mixed":
prompts so long that on average one chunk of 128 tokens is read in each iteration.

Columns: submit (the arrivals), schedule (with the plan's part of the record), build (rows to arrays, sampled tokens to
rows), commit (tokens, text, ends), publish (the record). The median over rounds of a round's mean, and the best round.
Cases that are compared take turns. The last line is JSON.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import random
import statistics
import sys
import time
from typing import Any

from engine.clock import RealClock
from engine.collector import keep_collector_quiet
from engine.config import EngineConfig
from engine.engine import Engine
from engine.executors.base import Sampled, spread
from engine.executors.rows import BatchRows
from engine.plan import Plan
from engine.request import Request
from engine.sampling_params import SamplingParams
from engine.tokenizer import Tokenizer
from workbench.model_store import resolve

CHUNK = 128
OUTPUT = 200
BLOCK = 16
PHASES = ("submit", "schedule", "build", "commit", "publish")


class NullExecutor:
    """Packs its inputs, computes nothing."""

    def __init__(self, config: EngineConfig, vocabulary: list[int]) -> None:
        self._rows = BatchRows(config.model_len, config.block_size)
        rng = random.Random(1)
        self._made_up = [rng.choice(vocabulary) for _ in range(1 << 16)]
        self._at = 0
        self.prompt_tokens = 0

    def execute(self, plan: Plan) -> Sampled:
        begun = time.perf_counter()
        packed = self._rows.pack(plan, 1)
        sampling = packed.sampling
        built = time.perf_counter()
        self.prompt_tokens += packed.offsets[-1] - len(plan.requests)
        if self._at + len(plan.requests) > len(self._made_up):
            self._at = 0
        made_up = self._made_up[self._at : self._at + len(sampling)]
        self._at += len(sampling)
        sampled = time.perf_counter()
        tokens = spread(sampling, made_up, len(plan.requests))
        self._rows.append(sampling, made_up)
        return Sampled(tokens, built - begun + time.perf_counter() - sampled, sampled - built, 0.0)

    def copy_blocks(self, out: Any, back: Any) -> int:
        return 0

    def release(self, id: str) -> None:
        self._rows.release(id)


class Case:
    """One engine in its steady state."""

    def __init__(
        self, tokenizer: Tokenizer, policy: str, running: int, waiting: int, mixed: bool, clients: int
    ) -> None:
        self.running, self.waiting, self.mixed, self.policy = running, waiting, mixed, policy
        self.clients = clients
        """Different clients that take turns; 0: every request is a client of its own."""
        self.prompt = max(16, CHUNK * OUTPUT // running) if mixed else 16
        longest = self.prompt + 3 * OUTPUT // 2
        config = EngineConfig.resolve(
            {
                "max_num_seqs": running,
                "max_num_batched_tokens": running + 4 * CHUNK,
                "long_prefill_token_threshold": CHUNK,
                "max_model_len": longest,
                "num_blocks": 1 + (running + 4) * -(-longest // BLOCK),
                "block_size": BLOCK,
                "policy": policy,
                "requests_per_minute": 1_000_000,
            }
        )
        self._vocabulary = [id for id in range(tokenizer.vocab_size) if id not in tokenizer.special_ids]
        if tokenizer.vocab_size < 300:
            self._vocabulary = list(range(32, 127))
        self.executor = NullExecutor(config, self._vocabulary)
        keep_collector_quiet()
        self.engine = Engine(config, self.executor, tokenizer, RealClock())
        self._rng = random.Random(running)
        self._numbers = itertools.count()
        self._coming: list[Request] = []
        for _ in range(running):
            # As if they had been running for a while.
            self.engine.submit(self.make(self._rng.randrange(1, OUTPUT + 1)))
        for _ in range(waiting):
            self.engine.submit(self.make())
        self.step(3)
        for _ in range(OUTPUT):  # under some policies there are always prompts that begin
            if not any(request.mid_prompt for request in self.engine.scheduler.running):
                break
            self.step(1)
        self.step(OUTPUT // 2)

    def make(self, tokens: int = 0) -> Request:
        rng, number = self._rng, next(self._numbers)
        return Request(
            f"request-{number}",
            rng.choices(self._vocabulary, k=self.prompt),
            SamplingParams(max_tokens=tokens or rng.randrange(OUTPUT // 2, 3 * OUTPUT // 2), ignore_eos=True),
            client=f"client-{number % self.clients if self.clients else number}",
            priority=number % 3,
            deadline=float(number % 5),
        )

    def step(self, iterations: int) -> dict[str, float]:
        """Mean microseconds by phase, and counts, of so many iterations; whoever ends is replaced."""
        engine, clock = self.engine, time.perf_counter
        spent = dict.fromkeys(PHASES, 0.0)
        ran = tokens = 0
        read = self.executor.prompt_tokens
        coming = self._coming
        for _ in range(iterations):
            begun = clock()
            record = engine.step()
            done = clock()
            assert record is not None and record.executed
            for request in coming:
                engine.submit(request)
            timings = record.timings
            ran += len(record.running)
            tokens += len(record.tokens)
            spent["submit"] += clock() - done
            coming = [self.make() for _ in record.finished]  # whoever ends is replaced an iteration later
            spent["schedule"] += timings.schedule
            spent["build"] += timings.build
            spent["commit"] += timings.commit
            known = timings.schedule + timings.build + timings.forward + timings.commit
            spent["publish"] += done - begun - known
        self._coming = coming
        result = {phase: 1e6 * seconds / iterations for phase, seconds in spent.items()}
        result["total"] = sum(result.values())
        result["running"], result["tokens"] = ran / iterations, tokens / iterations
        result["prompt_tokens"] = (self.executor.prompt_tokens - read) / iterations
        return result


def measure(cases: list[Case], rounds: int, iterations: int) -> list[dict[str, Any]]:
    """The rounds of several cases take turns, so that what else the machine does hits all of them."""
    seen: list[list[dict[str, float]]] = [[] for _ in cases]
    for number in range(rounds):
        for index in range(len(cases)) if number % 2 else reversed(range(len(cases))):
            seen[index].append(cases[index].step(iterations))
    rows = []
    for case, results in zip(cases, seen, strict=True):
        row: dict[str, Any] = {
            "policy": case.policy,
            "prefill": "mixed" if case.mixed else "decode",
            "running": round(statistics.mean(result["running"] for result in results), 1),
            "prompt_tokens": round(statistics.mean(result["prompt_tokens"] for result in results), 1),
            "waiting": case.waiting,
        }
        for name in (*PHASES, "total"):
            row[name] = round(statistics.median(result[name] for result in results), 1)
        row["best"] = round(min(result["total"] for result in results), 1)
        rows.append(row)
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    base = rows[0]
    for row in rows:
        numbers = "".join(f"{row[name]:9.1f}" for name in (*PHASES, "total", "best"))
        each = row["total"] / max(1.0, row["running"])
        row["vs_no_waiting"] = round(row["total"] / base["total"], 3)
        row["us_per_running"] = round(each, 3)
        print(
            f"{row['policy']:9}{row['prefill']:7}{row['running']:8.1f}{row['waiting']:8}{row['prompt_tokens']:8.1f}"
            f"{numbers}{each:8.2f}{row['vs_no_waiting']:8.2f}",
            flush=True,
        )


def soak(case: Case, iterations: int) -> dict[str, Any]:
    """Resident memory while so many iterations run and nobody keeps their records."""
    sizes = []
    for done in range(0, iterations + 1, max(1, iterations // 20)):
        if done:
            case.step(max(1, iterations // 20))
        gc.collect()
        sizes.append((done, resident()))
        print(f"{done:9} iterations  {sizes[-1][1] / 1e6:8.2f} MB  {len(gc.get_objects()):8} objects", flush=True)
    half = sizes[len(sizes) // 2][1]
    return {
        "policy": case.policy,
        "clients": case.clients,
        "running": case.running,
        "waiting": case.waiting,
        "iterations": iterations,
        "resident_mb": [round(size / 1e6, 2) for _, size in sizes],
        "growth_second_half_mb": round((sizes[-1][1] - half) / 1e6, 2),
    }


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def find_tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return Tokenizer.bytes()
    folder = resolve(name).path
    assert folder is not None, f"{name} has no tokenizer of its own"
    return Tokenizer.from_folder(folder)


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description="Cost of an iteration without its model.")
    parser.add_argument("--running", type=numbers, default=[8, 64, 256, 1024])
    parser.add_argument("--waiting", type=numbers, default=[0, 100, 10_000])
    parser.add_argument("--prefill", default="decode,mixed")
    parser.add_argument("--policies", default="fcfs")
    parser.add_argument("--clients", type=int, default=8, help="0: every request is a client of its own")
    parser.add_argument("--tokenizer", default="bytes", help="bytes, or a model's: default, a folder")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=40, help="of a round")
    parser.add_argument("--soak", type=int, default=0, help="iterations; --running and --waiting: the first ones")
    asked = parser.parse_args()
    if os.environ.get("WORKBENCH_CHECK") == "1":
        raise SystemExit("WORKBENCH_CHECK is on: every iteration would prove all invariants")
    tokenizer = find_tokenizer(asked.tokenizer)
    policies = asked.policies.split(",")
    if asked.soak:
        results = [
            soak(Case(tokenizer, policy, asked.running[0], asked.waiting[0], False, asked.clients), asked.soak)
            for policy in policies
        ]
        print(json.dumps({"soak": results}))
        return 0
    print(f"text: {asked.tokenizer} tokenizer; microseconds an iteration, median of {asked.rounds} rounds")
    names = "".join(f"{name:>9}" for name in (*PHASES, "total", "best"))
    print(f"{'policy':9}{'prefill':7}{'running':>8}{'waiting':>8}{'prompt':>8}{names}{'each':>8}{'ratio':>8}")
    rows: list[dict[str, Any]] = []
    for policy, prefill, running in itertools.product(policies, asked.prefill.split(","), asked.running):
        cases = [
            Case(tokenizer, policy, running, waiting, prefill == "mixed", asked.clients) for waiting in asked.waiting
        ]
        found = measure(cases, asked.rounds, asked.iterations)
        show(found)
        rows += found
    print("prompt: prompt tokens; each: of a running request; ratio: to the first number of waiting requests")
    print("a record lists the first 64 that wait: they cost the same whether 100 wait or 10,000")
    print(json.dumps({"tokenizer": asked.tokenizer, "rounds": asked.rounds, "cases": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
