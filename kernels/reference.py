"""The operations in plain torch, float32, one sequence at a time: the specification in code.

Slow on purpose. Every fast implementation is tested against these.
"""

from __future__ import annotations

import torch

from kernels.paged import PagedBatch


def write_kv(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slots: torch.Tensor
) -> None:
    """Store new keys and values `[T, kv_heads, head_dim]` at their slots of one layer's cache."""
    size = k_cache.shape[2]
    for token, slot in enumerate(slots.tolist()):
        k_cache[:, slot // size, slot % size] = k[token]
        v_cache[:, slot // size, slot % size] = v[token]


def attention(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, batch: PagedBatch, scale: float
) -> torch.Tensor:
    """Causal attention of new tokens `q` [T, heads, head_dim] over their sequences' cached K/V, new ones included.

    Query head h reads KV head `h // (heads / kv_heads)`. Returns [T, heads, head_dim]; padding rows are zero.
    """
    out = torch.zeros_like(q)
    groups = q.shape[1] // k_cache.shape[0]
    for b, start in enumerate(batch.starts):
        first, last = batch.offsets[b], batch.offsets[b + 1]
        blocks = batch.tables[b, : -(-(start + last - first) // batch.block_size)]
        k = k_cache[:, blocks].flatten(1, 2).float().repeat_interleave(groups, dim=0)
        v = v_cache[:, blocks].flatten(1, 2).float().repeat_interleave(groups, dim=0)
        for token in range(first, last):
            known = start + token - first + 1
            scores = torch.einsum("hd,htd->ht", q[token].float(), k[:, :known]) * scale
            out[token] = torch.einsum("ht,htd->hd", scores.softmax(-1), v[:, :known]).to(q.dtype)
    return out


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """`x / sqrt(mean(x^2) + eps) * weight` over the last dimension, in float32."""
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)).to(x.dtype) * weight


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate `x` [T, heads, head_dim] by its positions' `cos`, `sin` [T, head_dim / 2], halves paired (Llama)."""
    half = x.shape[-1] // 2
    a, b = x[..., :half], x[..., half:]
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """`silu(gate) * up` for `gate_up` [T, 2 * width] = gate then up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up
