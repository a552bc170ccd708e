"""Nothing waits for ever: settings that are legal for a scheduler and would still get nobody anywhere."""

from __future__ import annotations

import pytest

from engine.build import build_engine
from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.request import Request
from engine.sampling_params import SamplingParams
from tests.engine.harness import hf_greedy, hf_tiny, tiny_engine

STORM = {
    "enable_prefix_caching": False,
    "policy": "priority",
    "scheduler_reserve_full_isl": False,
    "max_model_len": 69,
    "num_blocks": 11,
    "block_size": 8,
    "long_prefill_token_threshold": 13,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 64,
}


def test_two_requests_that_evict_each_other_end_all_the_same() -> None:
    """They tie in priority and arrival, so each is the victim of the other, for ever by the rules alone."""
    engine = tiny_engine(**STORM)
    prompts = [[(7 * n + i) % 256 for n in range(60)] for i in range(2)]
    for index, prompt in enumerate(prompts):
        engine.submit(Request(f"r{index}", prompt, SamplingParams(max_tokens=4, ignore_eos=True), arrival=0.0))
    tokens: dict[str, list[int]] = {"r0": [], "r1": []}
    notices: list[str] = []
    for _ in range(300):
        it = engine.step()
        if it is None:
            break
        notices += it.notices
        for token in it.tokens:
            tokens[token.id].append(token.token_id)
    assert not engine.has_work()
    assert any("preemptions without progress" in notice for notice in notices)
    model = hf_tiny()
    assert tokens == {f"r{i}": hf_greedy(model, prompt, 4) for i, prompt in enumerate(prompts)}


def test_a_cap_below_the_prompts_is_refused_with_chunking_off() -> None:
    asked = {"enable_chunked_prefill": False, "max_num_scheduled_tokens": 16}
    with pytest.raises(ConfigError, match="max_num_scheduled_tokens: 16 is below max_model_len"):
        build_engine(None, asked, model_name="tiny")
    config = EngineConfig.resolve({"max_num_scheduled_tokens": 16, "num_blocks": 64})
    with pytest.raises(ConfigError, match="max_num_scheduled_tokens"):
        config.change("enable_chunked_prefill", False)


def test_absurd_threads_are_refused() -> None:
    with pytest.raises(ConfigError, match="threads: 100000 is out of range"):
        build_engine(None, {}, model_name="tiny", threads=100_000)
