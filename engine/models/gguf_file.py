"""A GGUF file of a Llama model, seen the Hugging Face way.

What: `GgufFile(path)` gives the `config.json` and `generation_config.json` it stands for, its tensors
under Hugging Face names, unpacked, and its tokenizer files (through `gguf_tokenizer`).
Invariant: architecture, RoPE variant, tensor names, shapes and packings are all checked on opening, so
`tensors()` cannot fail half-way on a file we do not understand.
Omission: one architecture (`llama`, dense), whole files only (no split sets), no experts.

llama.cpp stores query and key rows so that rotary pairs are neighbours; Hugging Face keeps the two
halves of a head apart. `tensors()` undoes that order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch

from engine.errors import ModelError
from engine.models.config import ModelConfig
from engine.models.gguf_tokenizer import TokenizerFiles, tokenizer_files
from engine.models.weights import Found, check

GLOBAL_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
LAYER_TENSOR = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
ROPE_FACTORS = "rope_freqs.weight"  # Llama 3.1's scaling, baked into one factor a frequency
# Everything the reader raises on a file that ends early or was overwritten.
DAMAGE = (ValueError, IndexError, KeyError, TypeError, OverflowError, UnicodeDecodeError)


class GgufFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        reader = _read(path)
        self._fields = reader.fields
        architecture = self._get("general.architecture")
        if architecture != "llama":
            raise ModelError(f"{path}: GGUF architecture {architecture!r} is not supported; supported: llama")
        if self._get("split.count", 1) > 1:
            raise ModelError(f"{path} is one part of a split GGUF; merge it first (gguf-split --merge)")
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        for tensor in reader.tensors:
            _check_packing(path, tensor.name, tensor.tensor_type)
        self.dtype = self._dtype()
        self.config = self._config()
        self.model_config = ModelConfig.from_hf(self.config)
        self._names = {name: _hf_name(path, name) for name in self._tensors if name != ROPE_FACTORS}
        self.shapes = {hf: tuple(map(int, self._tensors[n].shape[::-1])) for n, hf in self._names.items()}
        check(path, self.model_config, {n: Found(path, shape, "F32") for n, shape in self.shapes.items()})

    def tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """(Hugging Face name, tensor in `self.dtype`), one at a time, in the order of `self.shapes`."""
        for name, hf_name in self._names.items():
            tensor = self._tensors[name]
            values = np.asarray(gguf.dequantize(tensor.data, tensor.tensor_type))
            if hf_name.endswith(("q_proj.weight", "q_proj.bias")):
                values = _split_halves(values, self.model_config.num_heads)
            elif hf_name.endswith(("k_proj.weight", "k_proj.bias")):
                values = _split_halves(values, self.model_config.num_kv_heads)
            # np.array copies, because an F32 tensor is a view of the read-only file.
            yield hf_name, torch.from_numpy(np.array(values, dtype=np.float32)).to(self.dtype)

    @property
    def licence(self) -> str:
        return str(self._get("general.license", "not stated"))

    def tokenizer_files(self) -> TokenizerFiles:
        return tokenizer_files(self.path, self._get)

    def generation_config(self) -> dict[str, Any]:
        """What to stop at: the end-of-text id and, where the file has another, the end-of-turn id."""
        ids = {
            "bos_token_id": self._get("tokenizer.ggml.bos_token_id", None),
            "eos_token_id": self._get("tokenizer.ggml.eos_token_id", None),
            "pad_token_id": self._get("tokenizer.ggml.padding_token_id", None),
        }
        end_of_turn = self._get("tokenizer.ggml.eot_token_id", None)
        if end_of_turn is not None and end_of_turn != ids["eos_token_id"]:
            ids["eos_token_id"] = [i for i in (ids["eos_token_id"], end_of_turn) if i is not None]
        return {key: value for key, value in ids.items() if value is not None}

    def _get(self, key: str, *default: Any) -> Any:
        field = self._fields.get(key)
        if field is not None:
            return field.contents()
        if default:
            return default[0]
        raise ModelError(f"{self.path}: GGUF key {key} is missing")

    def _dtype(self) -> torch.dtype:
        """bfloat16, unless the matrices are stored as plain floats that it would round."""
        kinds = {t.tensor_type.name for t in self._tensors.values() if len(t.shape) > 1}
        if kinds == {"F32"}:
            return torch.float32
        return torch.float16 if kinds == {"F16"} else torch.bfloat16

    def _config(self) -> dict[str, Any]:
        if self._get("llama.expert_count", 0):
            raise ModelError(f"{self.path}: mixture-of-experts models are not supported")
        if "token_embd.weight" not in self._tensors:
            raise ModelError(f"{self.path}: GGUF tensor token_embd.weight is missing")
        heads = int(self._get("llama.attention.head_count"))
        hidden = int(self._get("llama.embedding_length"))
        head_dim = int(self._get("llama.attention.key_length", hidden // heads))
        rotary = int(self._get("llama.rope.dimension_count", head_dim))
        if rotary != head_dim:
            raise ModelError(f"{self.path}: partial rotary heads ({rotary} of {head_dim}) are not supported")
        dtype = str(self.dtype).removeprefix("torch.")
        rope = self._rope(head_dim)
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": int(self._tensors["token_embd.weight"].shape[1]),
            "hidden_size": hidden,
            "intermediate_size": int(self._get("llama.feed_forward_length")),
            "num_hidden_layers": int(self._get("llama.block_count")),
            "num_attention_heads": heads,
            "num_key_value_heads": int(self._get("llama.attention.head_count_kv", heads)),
            "head_dim": head_dim,
            "hidden_act": "silu",
            "max_position_embeddings": int(self._get("llama.context_length")),
            "rms_norm_eps": _decimal(self._get("llama.attention.layer_norm_rms_epsilon")),
            "rope_theta": rope["rope_theta"],
            "rope_parameters": rope,
            "tie_word_embeddings": "output.weight" not in self._tensors,
            "attention_bias": any(name.endswith("attn_q.bias") for name in self._tensors),
            "mlp_bias": any(name.endswith("ffn_up.bias") for name in self._tensors),
            "bos_token_id": self._get("tokenizer.ggml.bos_token_id", None),
            "eos_token_id": self._get("tokenizer.ggml.eos_token_id", None),
            "pad_token_id": self._get("tokenizer.ggml.padding_token_id", None),
            "dtype": dtype,
        }

    def _rope(self, head_dim: int) -> dict[str, Any]:
        theta = _decimal(self._get("llama.rope.freq_base", 10000.0))
        kind = self._get("llama.rope.scaling.type", "none")
        if kind == "linear":
            factor = _decimal(self._get("llama.rope.scaling.factor"))
            return {"rope_type": "linear", "rope_theta": theta, "factor": factor}
        if kind != "none":
            raise ModelError(f"{self.path}: RoPE scaling {kind!r} is not supported; supported: linear, llama3")
        if ROPE_FACTORS not in self._tensors:
            return {"rope_type": "default", "rope_theta": theta}
        factors = np.asarray(self._tensors[ROPE_FACTORS].data, dtype=np.float64).ravel()
        scaling = _llama3_scaling(factors, theta, head_dim)
        if scaling is None:
            raise ModelError(f"{self.path}: {ROPE_FACTORS} is not one of Llama 3's scalings")
        return {"rope_type": "llama3", "rope_theta": theta, **scaling}


def _read(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    if magic != b"GGUF":
        raise ModelError(f"{path} is not a GGUF file")
    try:
        return gguf.GGUFReader(path)
    except DAMAGE as error:
        if "GGMLQuantizationType" in str(error):
            raise ModelError(f"{path}: unknown tensor packing: {error}") from error
        raise ModelError(f"{path} is truncated or damaged; download it again ({error})") from error


def _check_packing(path: Path, name: str, kind: Any) -> None:
    _, size = gguf.GGML_QUANT_SIZES[kind]
    try:
        gguf.dequantize(np.zeros((1, size), dtype=np.uint8), kind)
    except (NotImplementedError, KeyError) as error:
        raise ModelError(f"{path}: tensor {name} is packed as {kind.name}, which is not supported") from error


def _hf_name(path: Path, name: str) -> str:
    if name in GLOBAL_NAMES:
        return GLOBAL_NAMES[name]
    match = LAYER_TENSOR.fullmatch(name)
    if match is None or match[2] not in LAYER_NAMES:
        raise ModelError(f"{path}: unknown GGUF tensor {name}")
    return f"model.layers.{match[1]}.{LAYER_NAMES[match[2]]}.{match[3]}"


def _split_halves(values: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """Rows of each head from (pair, half) order back to (half, pair) order."""
    pairs = values.reshape(heads, values.shape[0] // heads // 2, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _decimal(value: Any) -> float:
    """A float32 as its writer meant it: 1e-05, not 9.999999747378752e-06."""
    return float(f"{float(value):.7g}")


def _llama3_scaling(factors: np.ndarray[Any, Any], theta: float, head_dim: int) -> dict[str, Any] | None:
    """The scaling that gives these divisors of the frequencies, if it is the published one (low 1,
    high 4, original context 8192, any factor); None if it is not."""
    factor, low, high, context = _decimal(factors.max()), 1.0, 4.0, 8192
    expected = []
    for position in range(0, head_dim, 2):
        wavelength = 2 * math.pi * theta ** (position / head_dim)
        if wavelength < context / high:
            expected.append(1.0)
        elif wavelength > context / low:
            expected.append(factor)
        else:
            smooth = (context / wavelength - low) / (high - low)
            expected.append(1 / ((1 - smooth) / factor + smooth))
    if factors.shape != (len(expected),) or not np.allclose(factors, expected, rtol=1e-3):
        return None
    return {
        "factor": factor,
        "low_freq_factor": low,
        "high_freq_factor": high,
        "original_max_position_embeddings": context,
    }
