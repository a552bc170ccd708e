"""What `EngineConfig.resolve` accepts, decides and refuses (FAULTS R-03, SCHEDULER "config checks")."""

from __future__ import annotations

from typing import Any

import pytest

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.knobs import KNOBS


def resolve(model_len: int | None = 4096, **asked: Any) -> EngineConfig:
    return EngineConfig.resolve(asked, model_len)


def test_defaults_are_those_of_the_table() -> None:
    values = resolve().values()
    assert list(values) == list(KNOBS)
    for name, knob in KNOBS.items():
        if name not in ("max_model_len", "num_cpu_blocks"):  # decided by pool and model
            assert values[name] == knob.default


@pytest.mark.parametrize(
    ("model_len", "asked", "expected", "word"),
    [
        (4096, {"num_blocks": 11, "block_size": 16}, 160, "KV pool"),
        (100, {"num_blocks": 1000}, 100, "model"),
        (None, {"num_blocks": 3, "block_size": 1}, 2, "KV pool"),
        (4096, {"enable_chunked_prefill": False, "max_num_batched_tokens": 64}, 64, "max_num_batched_tokens"),
    ],
)
def test_model_len_is_decided_and_said(model_len: int | None, asked: dict[str, Any], expected: int, word: str) -> None:
    config = resolve(model_len, **asked)
    assert config.model_len == expected
    assert any(str(expected) in note and word in note for note in config.notes)


def test_what_was_asked_for_is_what_runs() -> None:
    asked = {
        "max_num_seqs": 3, "max_num_batched_tokens": 7, "num_blocks": 50, "block_size": 4, "max_model_len": 100,
        "enable_prefix_caching": False, "policy": "priority", "long_prefill_token_threshold": 5, "watermark": 0.25,
        "max_num_active_seqs": 2, "max_num_scheduled_tokens": 6, "prefill_schedule_interval": 2,
    }  # fmt: skip
    config = resolve(**asked)
    assert {name: getattr(config, name) for name in asked} == asked
    assert config.notes == ()


def test_budget_below_default_seqs_lowers_them_visibly() -> None:
    config = resolve(max_num_batched_tokens=4)
    assert config.max_num_seqs == 4 and any("max_num_seqs 4" in note for note in config.notes)


def test_seqs_above_default_budget_raise_it_visibly() -> None:
    config = resolve(max_num_seqs=1000)
    assert config.max_num_batched_tokens == 1000 and any("1000" in note for note in config.notes)


def test_chunking_off_gets_a_budget_for_the_longest_prompt() -> None:
    config = resolve(enable_chunked_prefill=False)
    assert config.max_num_batched_tokens >= config.model_len
    assert any("max_num_batched_tokens" in note for note in config.notes)


REFUSED = [
    ("max_num_batched_tokens", {"max_num_batched_tokens": 0}),
    ("max_num_batched_tokens", {"max_num_batched_tokens": -1}),
    ("max_num_batched_tokens", {"max_num_batched_tokens": 4, "max_num_seqs": 8}),
    ("max_num_seqs", {"max_num_seqs": 0}),
    ("block_size", {"block_size": 0}),
    ("block_size", {"block_size": 1 << 20}),
    ("num_blocks", {"num_blocks": 1}),
    ("num_blocks", {"num_blocks": 2, "block_size": 1}),
    ("max_model_len", {"max_model_len": 0}),
    ("max_model_len", {"max_model_len": 4097}),
    ("max_model_len", {"max_model_len": 1000, "num_blocks": 10}),
    ("max_num_batched_tokens", {"enable_chunked_prefill": False, "max_num_batched_tokens": 64, "max_model_len": 65}),
    ("long_prefill_token_threshold", {"long_prefill_token_threshold": 200, "max_model_len": 100}),
    ("long_prefill_token_threshold", {"long_prefill_token_threshold": -1}),
    ("max_num_active_seqs", {"max_num_active_seqs": 9, "max_num_seqs": 8}),
    ("max_num_scheduled_tokens", {"max_num_scheduled_tokens": 257}),
    ("watermark", {"watermark": 1.0}),
    ("watermark", {"watermark": float("nan")}),
    ("policy", {"policy": "lifo"}),
    ("policy", {"policy": None}),
    ("block_size", {"block_size": "16x"}),
    ("block_size", {"block_size": 16.5}),
    ("block_size", {"block_size": True}),
    ("enable_prefix_caching", {"enable_prefix_caching": "maybe"}),
    ("max_seqs", {"max_seqs": 4}),
]


@pytest.mark.parametrize(("knob", "asked"), REFUSED, ids=[f"{knob}-{i}" for i, (knob, _) in enumerate(REFUSED)])
def test_refused_by_name(knob: str, asked: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as error:
        resolve(**asked)
    assert error.value.knob == knob and str(error.value).startswith(knob)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("blocks", range(2, 8))
@pytest.mark.parametrize("size", [1, 3, 16])
def test_a_longest_sequence_fits_the_pool_exactly(blocks: int, size: int) -> None:
    """The null block counts: cdiv(max_model_len, block_size) <= num_blocks - 1."""
    most = (blocks - 1) * size
    if most >= 2:
        assert resolve(num_blocks=blocks, block_size=size, max_model_len=most).model_len == most
    with pytest.raises(ConfigError):
        resolve(num_blocks=blocks, block_size=size, max_model_len=max(2, most + 1))


def test_change_is_checked_and_leaves_the_old_one() -> None:
    config = resolve()
    assert config.change("max_num_seqs", "32").max_num_seqs == 32
    assert config.change("max_num_active_seqs", 2).change("max_num_active_seqs", None).max_num_active_seqs is None
    for name, value in (
        ("block_size", 8), ("num_blocks", 513), ("max_model_len", 64), ("enable_prefix_caching", False),
        ("max_num_seqs", 257), ("max_num_batched_tokens", 15), ("nothing", 1), ("max_num_seqs", None),
    ):  # fmt: skip
        with pytest.raises(ConfigError):
            config.change(name, value)
    assert config == resolve()


def test_live_chunking_off_with_a_small_budget_is_allowed() -> None:
    assert not resolve(max_num_batched_tokens=16).change("enable_chunked_prefill", "off").enable_chunked_prefill
