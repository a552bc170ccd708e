"""Reading config.json: every spelling of a supported setting, every unsupported one refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelError
from engine.models.config import ModelConfig, RopeScaling
from engine.models.tiny import TINY_CONFIG

LLAMA3 = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def read(**changes: Any) -> ModelConfig:
    """The tiny config with changes; a value of `...` removes the key."""
    merged = {**TINY_CONFIG, **changes}
    return ModelConfig.from_hf({key: value for key, value in merged.items() if value is not ...})


def test_tiny() -> None:
    config = read()
    assert (config.num_layers, config.q_size, config.kv_size, config.head_dim) == (2, 64, 32, 16)
    assert config.eos_token_ids == (257,)
    assert config.rope_scaling == RopeScaling()


def test_defaults_are_those_of_transformers() -> None:
    from transformers import LlamaConfig

    shape = {
        k: TINY_CONFIG[k]
        for k in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_hidden_layers",
            "num_attention_heads",
        )
    }
    ours, theirs = ModelConfig.from_hf({"model_type": "llama", **shape}), LlamaConfig(**shape)
    assert ours.num_kv_heads == theirs.num_key_value_heads
    assert ours.head_dim == theirs.head_dim
    assert ours.max_position_embeddings == theirs.max_position_embeddings
    assert ours.rms_norm_eps == theirs.rms_norm_eps
    assert ours.rope_theta == theirs.rope_parameters["rope_theta"]
    assert ours.tie_word_embeddings == theirs.tie_word_embeddings
    assert (ours.attention_bias, ours.mlp_bias) == (theirs.attention_bias, theirs.mlp_bias)


def test_head_dim_is_the_declared_one() -> None:
    assert read(head_dim=32).q_size == 128
    assert read(head_dim=None).head_dim == 16
    assert read(head_dim=..., num_key_value_heads=...).kv_size == 64


@pytest.mark.parametrize(
    ("changes", "theta", "scaling"),
    [
        ({"rope_theta": ...}, 10000.0, RopeScaling()),
        ({"rope_theta": 5e5}, 5e5, RopeScaling()),
        ({"rope_scaling": None}, 10000.0, RopeScaling()),
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, 1e6, RopeScaling()),
        ({"rope_theta": ..., "rope_parameters": {"rope_theta": 7.0}}, 7.0, RopeScaling()),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 10000.0, RopeScaling("linear", 2.0)),
        ({"rope_scaling": {"rope_type": "linear", "factor": 2}}, 10000.0, RopeScaling("linear", 2.0)),
        ({"rope_scaling": {"rope_type": "llama3", **LLAMA3}}, 1e4, RopeScaling("llama3", 8, 1, 4, 8192)),
        ({"rope_parameters": {"type": "llama3", **LLAMA3}}, 1e4, RopeScaling("llama3", 8, 1, 4, 8192)),
    ],
)
def test_rope(changes: dict[str, Any], theta: float, scaling: RopeScaling) -> None:
    config = read(**changes)
    assert (config.rope_theta, config.rope_scaling) == (theta, scaling)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
@pytest.mark.parametrize("spelling", ["type", "rope_type"])
def test_same_rope_as_transformers(key: str, spelling: str) -> None:
    from transformers import LlamaConfig

    without_length = {k: v for k, v in LLAMA3.items() if k != "original_max_position_embeddings"}
    changes = {key: {spelling: "llama3", **without_length}, "rope_theta": 5e5}
    theirs = LlamaConfig(**{k: v for k, v in {**TINY_CONFIG, **changes}.items() if k != "architectures"})
    ours = read(**changes)
    assert theirs.rope_parameters["rope_type"] == ours.rope_scaling.kind == "llama3"
    assert theirs.rope_parameters["rope_theta"] == ours.rope_theta == 5e5
    expected = theirs.rope_parameters["original_max_position_embeddings"]
    assert ours.rope_scaling.original_max_position_embeddings == expected == 4096


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"architectures": ["GPTNeoXForCausalLM"]}, "GPTNeoXForCausalLM"),
        ({"architectures": ..., "model_type": "qwen3"}, "qwen3"),
        ({"hidden_act": "gelu"}, "gelu"),
        ({"quantization_config": {"quant_method": "gptq"}}, "gptq"),
        ({"rope_scaling": {"type": "yarn", "factor": 2.0}}, "yarn"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "dynamic"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "longrope"),
        ({"rope_scaling": {"type": "linear"}}, "factor is missing"),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "factor must be a positive"),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0}}, "low_freq_factor is missing"),
        ({"rope_scaling": {"type": "llama3", **LLAMA3, "high_freq_factor": 1.0}}, "greater than"),
        ({"rope_scaling": "linear"}, "must be an object"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"vocab_size": ...}, "vocab_size is missing"),
        ({"hidden_size": "64"}, "hidden_size must be a positive number"),
        ({"num_hidden_layers": 2.5}, "whole number"),
        ({"num_key_value_heads": 3}, "do not divide"),
        ({"head_dim": 15}, "odd"),
        ({"head_dim": ..., "hidden_size": 66}, "does not divide"),
        ({"eos_token_id": "2"}, "token ids"),
    ],
)
def test_refused_by_name(changes: dict[str, Any], match: str) -> None:
    with pytest.raises(ModelError, match=match) as caught:
        read(**changes)
    assert "\n" not in str(caught.value)


def test_broken_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        ModelConfig.from_folder(tmp_path)
    (tmp_path / "config.json").write_text("{,")
    with pytest.raises(ModelError, match="not valid JSON"):
        ModelConfig.from_folder(tmp_path)
