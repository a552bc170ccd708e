"""A built-in Llama with random weights: small enough to run anywhere, real enough to test everything.

What: a config and a state dict under Hugging Face names, for a model over bytes (see `Tokenizer.bytes`).
Invariant: `tiny_weights(seed)` gives the same numbers on every machine (numpy's PCG64, no torch
randomness), and greedy decoding of it wanders instead of repeating one token, so a wrong cache,
mask or position shows in the output.
Omission: it has learned nothing. Bytes that print are favoured only so that a screen shows letters.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from engine.models.config import ModelConfig
from engine.models.weights import EMBED, HEAD, expected_shapes

BOS, EOS, PAD = 256, 257, 258

TINY_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 259,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "hidden_act": "silu",
    "bos_token_id": BOS,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "dtype": "float32",
}


def tiny_config() -> ModelConfig:
    return ModelConfig.from_hf(TINY_CONFIG)


def tiny_weights(seed: int = 0) -> dict[str, torch.Tensor]:
    """The state dict (float32, CPU), ready for our decoder or for transformers' LlamaForCausalLM."""
    rng = np.random.Generator(np.random.PCG64(seed))
    weights: dict[str, torch.Tensor] = {}
    for name, shape in expected_shapes(tiny_config()).items():
        values = rng.standard_normal(shape)
        if len(shape) == 1:
            values = 1.0 + 0.1 * values  # norms near one, but not one: a forgotten norm must show
        elif name == HEAD:
            values *= _head_scale()[:, None] / np.sqrt(shape[1])
        elif name != EMBED:
            # Each layer must outweigh the residual stream, or the next token depends on the last one only
            # and greedy decoding falls into a loop of a few tokens.
            values *= 2.0 / np.sqrt(shape[1])
        weights[name] = torch.from_numpy(values.astype(np.float32))
    return weights


def _head_scale() -> np.ndarray[Any, np.dtype[np.float64]]:
    """Logits with a spread of about 4 for printable ASCII, about 0.2 for everything else."""
    scale = np.full(TINY_CONFIG["vocab_size"], 0.2)
    scale[32:127] = 4.0
    return scale
