"""One decoder for the Llama family, read from its configuration.

`forward` runs a packed batch of any mix of prompt chunks and single tokens through all layers and leaves their K/V
in the cache; `logits` is asked only for the rows that sample. Norm before each half of a layer, rotary positions,
grouped K/V heads, SwiGLU. Weights of q/k/v and of gate/up are joined, so a layer is four matrix products.

Omission: nothing here knows requests, and nothing is trained: no dropout, no gradients.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from engine.models import rope
from engine.models.config import ModelConfig
from engine.models.weights import EMBED, HEAD
from kernels import api


@dataclass(slots=True)
class Layer:
    input_norm: torch.Tensor
    qkv: api.Linear
    o: api.Linear
    mlp_norm: torch.Tensor
    gate_up: api.Linear
    down: api.Linear


class Decoder:
    """Weights on one device. `weights` (Hugging Face names) is emptied as it is taken over, to keep memory low."""

    def __init__(self, config: ModelConfig, weights: dict[str, torch.Tensor], max_len: int) -> None:
        self.config = config
        self.embed = weights[EMBED]
        self.dtype, self.device = self.embed.dtype, self.embed.device
        self.num_parameters = sum({t.data_ptr(): t.numel() for t in weights.values()}.values())
        self.layers = [_take_layer(weights, index) for index in range(config.num_layers)]
        self.final_norm = weights.pop("model.norm.weight")
        self.head = api.Linear(weights.pop(HEAD))
        self.rows = api.row_multiple(self.dtype, self.device)
        """Batches and logit rows must come in multiples of this (see kernels.api.row_multiple)."""
        cos, sin = rope.tables(config, max_len, self.dtype)
        self._cos, self._sin = cos.to(self.device), sin.to(self.device)
        self._scale = config.head_dim**-0.5

    def forward(self, ids: torch.Tensor, batch: api.PagedBatch, kv: api.PagedKV) -> torch.Tensor:
        """Hidden states [T, hidden] after the last layer, before the final norm. ids: [T] int64."""
        config, eps = self.config, self.config.rms_norm_eps
        q_size, kv_size, dim = config.q_size, config.kv_size, config.head_dim
        count = ids.shape[0]
        cos, sin = self._cos[batch.positions], self._sin[batch.positions]
        plan = api.plan_attention(batch, kv.k[0], config.num_heads // config.num_kv_heads, self.dtype)
        x = self.embed[ids]
        for index, layer in enumerate(self.layers):
            k_cache, v_cache = kv.k[index], kv.v[index]
            qkv = layer.qkv(api.rms_norm(x, layer.input_norm, eps))
            q, k, v = torch.split(qkv, [q_size, kv_size, kv_size], dim=-1)
            q = api.rope(q.view(count, -1, dim), cos, sin)
            k = api.rope(k.view(count, -1, dim), cos, sin)
            api.write_kv(k, v.view(count, -1, dim), k_cache, v_cache, batch.slots)
            x = x + layer.o(api.attention(q, k_cache, v_cache, plan, self._scale).view(count, q_size))
            x = x + layer.down(api.silu_mul(layer.gate_up(api.rms_norm(x, layer.mlp_norm, eps))))
        return x

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Float32 logits [rows, vocabulary] for rows of `forward`'s result."""
        normed = api.rms_norm(hidden, self.final_norm, self.config.rms_norm_eps)
        return self.head(normed).float()


def _take_layer(weights: dict[str, torch.Tensor], index: int) -> Layer:
    prefix = f"model.layers.{index}."

    def joined(part: str, *names: str) -> api.Linear:
        weight = torch.cat([weights.pop(f"{prefix}{part}.{name}.weight") for name in names])
        biases = [weights.pop(f"{prefix}{part}.{name}.bias", None) for name in names]
        bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        return api.Linear(weight, bias)

    return Layer(
        input_norm=weights.pop(prefix + "input_layernorm.weight"),
        qkv=joined("self_attn", "q_proj", "k_proj", "v_proj"),
        o=joined("self_attn", "o_proj"),
        mlp_norm=weights.pop(prefix + "post_attention_layernorm.weight"),
        gate_up=joined("mlp", "gate_proj", "up_proj"),
        down=joined("mlp", "down_proj"),
    )
