"""Matrix products with fixed weights.

On a CPU in bfloat16 the weight is reordered once into oneDNN's blocked layout: at a few rows, where decoding
lives, the product is then limited by reading the weights and not by reordering them in every call.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F


class Linear:
    """`x @ weight.T + bias` for x [rows, in]."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        self.bias = bias
        self.packed = _can_pack(weight)
        self.weight = (
            torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None) if self.packed else weight.contiguous()
        )

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if self.packed:
            y: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
            return y
        return F.linear(x, self.weight, self.bias)


def _can_pack(weight: torch.Tensor) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype is torch.bfloat16
        and bool(torch._C._has_mkldnn)
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    )
