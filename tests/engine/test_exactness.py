"""Greedy tokens are Hugging Face's, whatever the schedule: chunking, block size, pool, prefix cache, neighbours."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from engine.build import build_engine
from engine.engine import Engine
from engine.records import Phase
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.harness import hf_folder, hf_greedy, hf_tiny, run, submit_all, tiny_engine

LENGTHS = (1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 128, 150, 200, 255, 256, 257, 400, 511, 700)
NEW = 12
GREEDY = SamplingParams(max_tokens=NEW, ignore_eos=True)


def make_prompts(lengths: tuple[int, ...], vocabulary: int, shared: int) -> list[list[int]]:
    """Random prompts; every second one begins with the same `shared` tokens, so that prefix hits happen."""
    rng = random.Random(7)
    prefix = [rng.randrange(vocabulary) for _ in range(shared)]
    prompts = []
    for index, length in enumerate(lengths):
        prompt = [rng.randrange(vocabulary) for _ in range(length)]
        if index % 2:
            prompt[:shared] = prefix[:length]
        prompts.append(prompt)
    return prompts


def knobs(prompts: list[list[int]], budget: int, size: int, tight: bool, caching: bool) -> dict[str, Any]:
    """A pool for all prompts at once, or barely more than the longest one."""
    lengths = [len(prompt) for prompt in prompts]
    longest = max(lengths) + NEW
    blocks = -(-longest // size) + -(-60 // size) + 1 if tight else sum(-(-(n + NEW) // size) for n in lengths) + 8
    return {
        "max_num_batched_tokens": budget,
        "max_num_seqs": min(24, budget),
        "block_size": size,
        "num_blocks": blocks,
        "max_model_len": longest + 1,
        "enable_prefix_caching": caching,
        # Tight: several prompts grow side by side, admitted with too little room for all of them.
        "scheduler_reserve_full_isl": not tight,
        "long_prefill_token_threshold": max(1, min(budget, 256) // 8) if tight else 0,
    }


def spread_preemptions(engine: Engine) -> None:
    """Preempt whoever was preempted least, until everybody was; then as FCFS does, or it might go on for ever."""
    everybody = list(engine.scheduler.requests.values())[:8]

    def victim(running: Sequence[Request]) -> int:
        if all(request.num_preemptions for request in everybody):
            return len(running) - 1
        return min(range(len(running)), key=lambda i: running[i].num_preemptions)

    engine.scheduler.eviction.victim = lambda: victim(engine.scheduler.running)  # type: ignore[method-assign]


def shuffle_victims(engine: Engine) -> None:
    """Preempt anybody: the built-in policies always protect one request, and every one shall be preempted."""
    rng = random.Random(3)
    engine.scheduler.eviction.victim = lambda: rng.randrange(len(engine.scheduler.running))  # type: ignore[method-assign]


@cache
def tiny_expected() -> tuple[list[list[int]], list[list[int]]]:
    prompts = make_prompts(LENGTHS, 256, 40)
    model = hf_tiny()
    return prompts, [hf_greedy(model, prompt, NEW) for prompt in prompts]


def check(engine: Engine, prompts: list[list[int]], expected: list[list[int]], *, tight: bool, caching: bool) -> None:
    ids = submit_all(engine, prompts, GREEDY)
    if tight:
        shuffle_victims(engine)
    out = run(engine)
    wrong = [id for id, want in zip(ids, expected, strict=True) if out.token_ids[id] != want]
    assert not wrong, f"other tokens than Hugging Face for {wrong}"
    for id in ids:
        assert out.text[id] == engine.tokenizer.decode(out.token_ids[id]), "streamed pieces differ from the text"
    if tight:
        assert sum(out.preemptions.values()) > 0
    if caching:
        assert out.cached > 0
    else:
        assert out.cached == 0


GRID = [
    pytest.param(budget, size, tight, caching, id=f"budget{budget}-block{size}-{'tight' if tight else 'ample'}-{word}")
    for budget, size, tight, (caching, word) in product(
        (17, 64, 256, 8192), (1, 16, 256), (False, True), ((True, "cache"), (False, "nocache"))
    )
    # Half of the product, with every pair of values in it; `WORKBENCH_ALL=1` runs the whole.
    if os.environ.get("WORKBENCH_ALL") or (budget in (17, 256)) == (tight == caching)
]


@pytest.mark.parametrize(("budget", "size", "tight", "caching"), GRID)
def test_tiny(budget: int, size: int, tight: bool, caching: bool) -> None:
    prompts, expected = tiny_expected()
    if size == 1:  # proving the invariants of thousands of blocks after every step takes long
        few = [i for i, prompt in enumerate(prompts) if len(prompt) <= 150]
        prompts, expected = [prompts[i] for i in few], [expected[i] for i in few]
    engine = tiny_engine(**knobs(prompts, budget, size, tight, caching))
    # With blocks of 256 nothing is shared (the common beginning is 40 tokens) and preempted ones hit their own blocks.
    expect_hits = caching and size < 256
    if caching and not expect_hits:
        ids = submit_all(engine, prompts, GREEDY)
        out = run(engine)
        assert [out.token_ids[id] for id in ids] == expected
    else:
        check(engine, prompts, expected, tight=tight, caching=caching)


@pytest.mark.parametrize("size", [1, 16])
def test_one_token_at_a_time(size: int) -> None:
    """A budget of 1: every token, prompt or output, is an iteration of its own."""
    prompts, expected = tiny_expected()
    few = [i for i, prompt in enumerate(prompts) if len(prompt) <= 100]
    engine = tiny_engine(max_num_batched_tokens=1, block_size=size, num_blocks=400)
    check(engine, [prompts[i] for i in few], [expected[i] for i in few], tight=False, caching=True)


def crowded(vocabulary: int, new: int) -> tuple[list[list[int]], SamplingParams, dict[str, Any]]:
    """Knobs under which the first eight of ten requests are preempted; the last ones only keep the pool full."""
    rng = random.Random(11)
    chosen = [[rng.randrange(vocabulary) for _ in range(rng.randrange(60, 130))] for _ in range(10)]
    knobs = {
        "max_num_batched_tokens": 80,
        "num_blocks": 13,
        "max_model_len": 190,
        "scheduler_reserve_full_isl": False,
        "long_prefill_token_threshold": 8,
    }
    return chosen, SamplingParams(max_tokens=new, ignore_eos=True), knobs


@pytest.mark.parametrize("caching", [True, False])
def test_every_request_preempted(caching: bool) -> None:
    """R-02: all eight are preempted at least once, in the middle of their output or prompt, and answer as before."""
    chosen, params, knobs = crowded(256, 48)
    model = hf_tiny()
    engine = tiny_engine(**knobs, enable_prefix_caching=caching)
    ids = submit_all(engine, chosen, params)
    spread_preemptions(engine)
    out = run(engine)
    assert all(out.preemptions[id] >= 1 for id in ids[:8]), out.preemptions
    assert [out.token_ids[id] for id in ids] == [hf_greedy(model, prompt, 48) for prompt in chosen]
    assert sum(it.tokens_in(Phase.RECOMPUTE) for it in out.iterations) > 0


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_preempted_by_the_real_policies(policy: str) -> None:
    prompts, expected = tiny_expected()
    engine = tiny_engine(max_num_batched_tokens=64, num_blocks=48, max_model_len=720, policy=policy,
                         scheduler_reserve_full_isl=False, long_prefill_token_threshold=8)  # fmt: skip
    ids = [f"r{i}" for i in range(len(prompts))]
    for index, (id, prompt) in enumerate(zip(ids, prompts, strict=True)):
        engine.submit(Request(id, prompt, GREEDY, priority=-index))
    out = run(engine)
    assert sum(out.preemptions.values()) > 0
    assert [out.token_ids[id] for id in ids] == expected


def test_neighbours_do_not_matter() -> None:
    """R-11: alone, with different neighbours at different places, and among copies of itself."""
    prompts, expected = tiny_expected()
    subject = 9
    for count in (0, 1, 3, 7, 15):
        for place in {0, count // 2, count}:
            others = [prompts[i] for i in range(len(prompts)) if i != subject and len(prompts[i]) < 300][:count]
            batch = [*others[:place], prompts[subject], *others[place:]]
            engine = tiny_engine(num_blocks=600)
            submit_all(engine, batch, GREEDY)
            assert run(engine).token_ids[f"r{place}"] == expected[subject]
    engine = tiny_engine(num_blocks=600)
    submit_all(engine, [prompts[subject]] * 8, GREEDY)
    assert set(map(tuple, run(engine).token_ids.values())) == {tuple(expected[subject])}


# ---- the real model ---------------------------------------------------------------------------------


def real_engine(folder: Path, **asked: Any) -> Engine:
    return build_engine(folder, asked, model_name="default", dtype="float32").engine


@pytest.fixture(scope="session")
def real_expected(default_model_dir: Path) -> tuple[list[list[int]], list[list[int]]]:
    prompts = make_prompts(LENGTHS, 49152, 40)
    model = hf_folder(default_model_dir)
    return prompts, [hf_greedy(model, prompt, NEW) for prompt in prompts]


@pytest.mark.model
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("budget", "size", "tight", "caching"),
    [(8192, 16, False, False), (256, 16, True, True), (64, 1, False, True), (17, 256, True, False)],
)
def test_real_model(
    default_model_dir: Path, real_expected: Any, budget: int, size: int, tight: bool, caching: bool
) -> None:
    prompts, expected = real_expected
    engine = real_engine(default_model_dir, **knobs(prompts, budget, size, tight, caching))
    check(engine, prompts, expected, tight=tight, caching=caching)


@pytest.mark.model
@pytest.mark.timeout(900)
def test_real_model_every_request_preempted(default_model_dir: Path) -> None:
    chosen, params, knobs = crowded(49152, 12)
    model = hf_folder(default_model_dir)
    engine = real_engine(default_model_dir, **knobs)
    ids = submit_all(engine, chosen, params)
    spread_preemptions(engine)
    out = run(engine)
    assert all(out.preemptions[id] >= 1 for id in ids[:8]), out.preemptions
    assert [out.token_ids[id] for id in ids] == [hf_greedy(model, prompt, 12) for prompt in chosen]


@pytest.mark.model
def test_real_model_one_token_at_a_time(default_model_dir: Path, real_expected: Any) -> None:
    prompts, expected = real_expected
    few = [i for i, prompt in enumerate(prompts) if len(prompt) <= 33]
    engine = real_engine(default_model_dir, max_num_batched_tokens=1, num_blocks=400)
    ids = submit_all(engine, [prompts[i] for i in few], GREEDY)
    out = run(engine)
    assert [out.token_ids[id] for id in ids] == [expected[i] for i in few]
