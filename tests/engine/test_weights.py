"""Loading weights: tied heads, biases, shards; and everything wrong named before anything is loaded."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from engine.errors import ModelError
from engine.models.config import ModelConfig
from engine.models.tiny import TINY_CONFIG, tiny_config, tiny_weights
from engine.models.weights import EMBED, HEAD, INDEX, SINGLE, expected_shapes, load_weights

TIED = replace(tiny_config(), tie_word_embeddings=True)
Weights = dict[str, torch.Tensor]


def load(folder: Path, config: ModelConfig) -> Weights:
    return load_weights(folder, config, torch.float32)


def save(folder: Path, weights: Weights) -> Path:
    save_file(weights, folder / SINGLE)
    return folder


def save_shards(folder: Path, weights: Weights, count: int = 3) -> dict[str, str]:
    names = list(weights)
    mapping = {name: f"model-{n % count + 1:05}-of-{count:05}.safetensors" for n, name in enumerate(names)}
    for file in set(mapping.values()):
        save_file({name: weights[name] for name in names if mapping[name] == file}, folder / file)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": mapping}))
    return mapping


def without(weights: Weights, *names: str) -> Weights:
    return {name: tensor for name, tensor in weights.items() if name not in names}


def same(left: Weights, right: Weights) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in right)


def test_single_file(tmp_path: Path) -> None:
    weights, seen = tiny_weights(), []
    loaded = load_weights(save(tmp_path, weights), tiny_config(), torch.float32, progress=lambda *a: seen.append(a))
    assert same(loaded, weights)
    assert seen[-1] == (len(weights), len(weights))


def test_shards(tmp_path: Path) -> None:
    weights = tiny_weights()
    save_shards(tmp_path, weights)
    assert same(load(tmp_path, tiny_config()), weights)


def test_cast(tmp_path: Path) -> None:
    loaded = load_weights(save(tmp_path, tiny_weights()), tiny_config(), torch.bfloat16)
    assert {tensor.dtype for tensor in loaded.values()} == {torch.bfloat16}


def test_weights_outlive_the_file(tmp_path: Path) -> None:
    loaded = load(save(tmp_path, tiny_weights()), tiny_config())
    (tmp_path / SINGLE).unlink()
    assert same(loaded, tiny_weights())


def test_saved_rotary_buffers_are_ignored(tmp_path: Path) -> None:
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    assert same(load(save(tmp_path, tiny_weights() | buffer), tiny_config()), tiny_weights())


def test_tied_without_head(tmp_path: Path) -> None:
    loaded = load(save(tmp_path, without(tiny_weights(), HEAD)), TIED)
    assert loaded[HEAD] is loaded[EMBED]


def test_tied_with_the_same_head(tmp_path: Path) -> None:
    weights = tiny_weights()
    weights[HEAD] = weights[EMBED].clone()
    loaded = load(save(tmp_path, weights), TIED)
    assert loaded[HEAD] is loaded[EMBED]


def test_tied_with_head_only(tmp_path: Path) -> None:
    loaded = load(save(tmp_path, without(tiny_weights(), EMBED)), TIED)
    assert torch.equal(loaded[EMBED], tiny_weights()[HEAD])


def test_untied_without_head(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"lm_head\.weight"):
        load(save(tmp_path, without(tiny_weights(), HEAD)), tiny_config())


@pytest.mark.parametrize(
    ("tied", "head"),  # untied and absent is refused: transformers fills it with noise
    [(True, "absent"), (True, "same"), (True, "other"), (False, "same"), (False, "other")],
)
def test_head_same_as_transformers(tied: bool, head: str, tmp_path: Path) -> None:
    from transformers import LlamaForCausalLM

    weights = tiny_weights()
    if head == "absent":
        del weights[HEAD]
    elif head == "same":
        weights[HEAD] = weights[EMBED].clone()
    save_file(weights, tmp_path / SINGLE, metadata={"format": "pt"})
    config: dict[str, Any] = {**TINY_CONFIG, "tie_word_embeddings": tied}
    (tmp_path / "config.json").write_text(json.dumps(config))
    theirs = LlamaForCausalLM.from_pretrained(tmp_path)
    ours = load(tmp_path, ModelConfig.from_hf(config))
    assert torch.equal(ours[HEAD], theirs.lm_head.weight)
    assert torch.equal(ours[EMBED], theirs.model.embed_tokens.weight)


@pytest.mark.parametrize(
    "changes",
    [
        {"attention_bias": True},
        {"mlp_bias": True},
        {"head_dim": 32},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4, "attention_bias": True, "mlp_bias": True},
    ],
)
def test_same_tensors_as_transformers(changes: dict[str, Any]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    config: dict[str, Any] = {**TINY_CONFIG, **changes}
    theirs = LlamaForCausalLM(LlamaConfig(**{k: v for k, v in config.items() if k != "architectures"}))
    shapes = {name: tuple(tensor.shape) for name, tensor in theirs.state_dict().items()}
    assert expected_shapes(ModelConfig.from_hf(config)) == shapes


def test_missing_and_unexpected_tensors(tmp_path: Path) -> None:
    weights = without(tiny_weights(), "model.layers.1.mlp.up_proj.weight")
    with pytest.raises(ModelError, match=r"lack 1 tensors: model\.layers\.1\.mlp\.up_proj\.weight"):
        load(save(tmp_path, weights), tiny_config())
    extra = {"model.layers.0.self_attn.q_proj.bias": torch.zeros(64)}
    with pytest.raises(ModelError, match=r"1 unknown tensors: model\.layers\.0\.self_attn\.q_proj\.bias"):
        load(save(tmp_path, tiny_weights() | extra), tiny_config())


def test_wrong_shape_and_type(tmp_path: Path) -> None:
    wrong = {"model.norm.weight": torch.ones(63)}
    with pytest.raises(ModelError, match=r"model\.norm\.weight has shape \(63,\), the config needs \(64,\)"):
        load(save(tmp_path, tiny_weights() | wrong), tiny_config())
    packed = {"model.norm.weight": torch.ones(64, dtype=torch.int8)}
    with pytest.raises(ModelError, match=r"model\.norm\.weight is I8"):
        load(save(tmp_path, tiny_weights() | packed), tiny_config())


def test_missing_shard(tmp_path: Path) -> None:
    save_shards(tmp_path, tiny_weights())
    (tmp_path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(ModelError, match="lacks 1 of 3 weight files: model-00002-of-00003"):
        load(tmp_path, tiny_config())


def test_no_weights(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no weights in"):
        load(tmp_path, tiny_config())
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(ModelError, match=r"pytorch_model\.bin is not read"):
        load(tmp_path, tiny_config())


def test_stale_index(tmp_path: Path) -> None:
    mapping = save_shards(tmp_path, tiny_weights())
    mapping["model.layers.9.ghost.weight"] = "model-00001-of-00003.safetensors"
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": mapping}))
    with pytest.raises(ModelError, match=r"1 tensors no file holds: model\.layers\.9\.ghost\.weight"):
        load(tmp_path, tiny_config())


def test_tensor_in_two_shards(tmp_path: Path) -> None:
    weights = tiny_weights()
    save_shards(tmp_path, weights)
    first = without(weights, *list(weights)[3:])
    save_file(first, tmp_path / "model-00001-of-00003.safetensors")
    with pytest.raises(ModelError, match="is in both"):
        load(tmp_path, tiny_config())


@pytest.mark.parametrize("content", ["{}", '{"weight_map": {}}', '{"weight_map": {"a": "../x"}}', "["])
def test_broken_index(content: str, tmp_path: Path) -> None:
    (tmp_path / INDEX).write_text(content)
    with pytest.raises(ModelError, match="index"):
        load(tmp_path, tiny_config())


@pytest.mark.parametrize("keep", [0, 4, 100, 20_000])
def test_truncated_file(keep: int, tmp_path: Path) -> None:
    file = save(tmp_path, tiny_weights()) / SINGLE
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"model\.safetensors is damaged"):
        load(tmp_path, tiny_config())
