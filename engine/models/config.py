"""The shape of a Llama-family model, read from a Hugging Face `config.json`.

What: `ModelConfig`, every number the decoder and the weight loader need, under our own names.
Invariant: a config we accept is one we compute exactly; anything that would change the maths and is
not implemented (another architecture, activation, RoPE variant, packed weights) is refused by name.
Omission: no other family yet, and no fields that only matter for training. Missing optional keys get
the value transformers gives them for Llama.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import ModelError

ARCHITECTURES = ("LlamaForCausalLM",)
ROPE_KINDS = ("default", "linear", "llama3")
DEFAULT_ROPE_THETA = 10000.0


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """How rotary frequencies are stretched; the three last fields matter for `llama3` only."""

    kind: str = "default"
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 1.0
    original_max_position_embeddings: int = 0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    """Declared; the quotient hidden_size / num_heads only where the file declares none."""
    max_position_embeddings: int
    rms_norm_eps: float = 1e-6
    rope_theta: float = DEFAULT_ROPE_THETA
    rope_scaling: RopeScaling = RopeScaling()
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    mlp_bias: bool = False
    hidden_act: str = "silu"
    bos_token_id: int | None = None
    eos_token_ids: tuple[int, ...] = ()
    """From this file only; `Tokenizer.eos_ids` is the full set to stop at."""

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        return cls.from_hf(read_json(folder / "config.json"))

    @classmethod
    def from_hf(cls, hf: Mapping[str, Any]) -> ModelConfig:
        _check_architecture(hf)
        hidden = _positive(hf, "hidden_size")
        heads = _positive(hf, "num_attention_heads")
        kv_heads = _positive(hf, "num_key_value_heads", heads)
        if heads % kv_heads:
            raise ModelError(f"config.json: {heads} attention heads do not divide by {kv_heads} KV heads")
        if hf.get("head_dim") is None and hidden % heads:
            raise ModelError(f"config.json: hidden_size {hidden} does not divide by {heads} heads")
        head_dim = _positive(hf, "head_dim", hidden // heads)
        if head_dim % 2:
            raise ModelError(f"config.json: head_dim {head_dim} is odd; rotary embedding needs an even one")
        context = _positive(hf, "max_position_embeddings", 2048)
        theta, scaling = _rope(hf, context)
        return cls(
            vocab_size=_positive(hf, "vocab_size"),
            hidden_size=hidden,
            intermediate_size=_positive(hf, "intermediate_size"),
            num_layers=_positive(hf, "num_hidden_layers"),
            num_heads=heads,
            num_kv_heads=kv_heads,
            head_dim=head_dim,
            max_position_embeddings=context,
            rms_norm_eps=_number(hf, "rms_norm_eps", 1e-6),
            rope_theta=theta,
            rope_scaling=scaling,
            tie_word_embeddings=bool(hf.get("tie_word_embeddings", False)),
            attention_bias=bool(hf.get("attention_bias", False)),
            mlp_bias=bool(hf.get("mlp_bias", False)),
            bos_token_id=first(token_ids(hf.get("bos_token_id"))),
            eos_token_ids=token_ids(hf.get("eos_token_id")),
        )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; a missing or broken file is a `ModelError` naming it."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} does not hold a JSON object")
    return value


def token_ids(value: object) -> tuple[int, ...]:
    """An id field as files write it: absent, one integer (0 is an id like any other) or a list."""
    if value is None:
        return ()
    values: list[Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
        raise ModelError(f"token ids must be integers or a list of them, not {value!r}")
    return tuple(v for v in values if v >= 0)  # some files write -1 for none


def first(ids: tuple[int, ...]) -> int | None:
    return ids[0] if ids else None


def _check_architecture(hf: Mapping[str, Any]) -> None:
    declared = hf.get("architectures") or (["LlamaForCausalLM"] if hf.get("model_type") == "llama" else [])
    if not isinstance(declared, list):
        raise ModelError(f"config.json: architectures must be a list of names, not {declared!r}")
    name = declared[0] if declared else hf.get("model_type")
    if name not in ARCHITECTURES:
        raise ModelError(f"architecture {name!r} is not supported; supported: {', '.join(ARCHITECTURES)}")
    act = hf.get("hidden_act", "silu")
    if act != "silu":
        raise ModelError(f"activation {act!r} is not supported; supported: silu")
    packed = hf.get("quantization_config")
    if packed:
        kind = packed.get("quant_method", "unknown") if isinstance(packed, Mapping) else packed
        raise ModelError(f"weights packed with {kind!r} are not supported; use an unpacked or GGUF version")


def _rope(hf: Mapping[str, Any], context: int) -> tuple[float, RopeScaling]:
    """(theta, scaling). `rope_scaling` wins over `rope_parameters`, a nested theta over a top-level one,
    and `rope_type` over `type`: the order transformers uses."""
    source = hf.get("rope_scaling") or hf.get("rope_parameters") or {}
    if not isinstance(source, Mapping):
        raise ModelError(f"config.json: rope settings must be an object, not {source!r}")
    theta = _number(source, "rope_theta", _number(hf, "rope_theta", DEFAULT_ROPE_THETA))
    partial = source.get("partial_rotary_factor", hf.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        raise ModelError(f"partial_rotary_factor {partial} is not supported; only full rotary heads are")
    kind = source.get("rope_type", source.get("type", "default"))
    if kind not in ROPE_KINDS:
        raise ModelError(f"RoPE scaling {kind!r} is not supported; supported: {', '.join(ROPE_KINDS)}")
    if kind == "default":
        return theta, RopeScaling()
    factor = _number(source, "factor")
    if kind == "linear":
        return theta, RopeScaling("linear", factor)
    original = hf.get("original_max_position_embeddings")  # top level wins where a file has both
    if original is None:
        original = source.get("original_max_position_embeddings")
    scaling = RopeScaling(
        "llama3",
        factor,
        _number(source, "low_freq_factor"),
        _number(source, "high_freq_factor"),
        int(original) if original is not None else context,
    )
    if scaling.high_freq_factor <= scaling.low_freq_factor:
        raise ModelError("RoPE scaling llama3: high_freq_factor must be greater than low_freq_factor")
    return theta, scaling


def _number(source: Mapping[str, Any], key: str, default: float | None = None) -> float:
    value = source.get(key)
    if value is None:
        value = default
    if value is None:
        raise ModelError(f"config.json: {key} is missing")
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ModelError(f"config.json: {key} must be a positive number, not {value!r}")
    return float(value)


def _positive(source: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = _number(source, key, default)
    if value != int(value):
        raise ModelError(f"config.json: {key} must be a whole number, not {value!r}")
    return int(value)
