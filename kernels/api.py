"""The operations a decoder is made of, and which implementation serves them.

Shapes and meaning are those of `kernels.reference`. All are functions of tensors; none knows a request.
Invariant: K/V of all tokens of a batch are written before any of the batch's attention in that layer reads,
since a prefix hit may point at blocks that this very batch fills.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from kernels.paged import PagedBatch, PagedKV
from kernels.portable.attention import AttentionPlan, attention
from kernels.portable.attention import plan as plan_attention
from kernels.portable.linear import Linear

__all__ = [
    "AttentionPlan",
    "Linear",
    "PagedBatch",
    "PagedKV",
    "attention",
    "plan_attention",
    "rms_norm",
    "rope",
    "row_multiple",
    "silu_mul",
    "write_kv",
]


def write_kv(
    k: torch.Tensor, v: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, slots: torch.Tensor
) -> None:
    kv_heads, num_blocks, size, dim = k_cache.shape
    k_cache.view(kv_heads, num_blocks * size, dim).index_copy_(1, slots, k.transpose(0, 1))
    v_cache.view(kv_heads, num_blocks * size, dim).index_copy_(1, slots, v.transpose(0, 1))


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    # F.silu, not x * sigmoid(x): the fused one gives the same bits for a row whatever the other rows are.
    gate, up = gate_up.chunk(2, dim=-1)
    return F.silu(gate) * up


def row_multiple(dtype: torch.dtype, device: torch.device) -> int:
    """Pad a batch to a multiple of this many rows so that a row's result does not depend on how many there are.

    MKL's float32 product picks its kernel by the row count, and results differ in the last bit between them; at
    multiples of 16 they never did, over 1 to 16 threads. Other products are used as they are.
    """
    return 16 if dtype is torch.float32 and device.type == "cpu" else 1
