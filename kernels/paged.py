"""The shape of a packed batch over a paged KV cache.

A batch is B sequences with any mix of prompt chunks and single decode tokens, their T new tokens laid end to end.
A layer's cache is `[kv_heads, num_blocks, block_size, head_dim]`: one sequence's keys are gathered head by head
without transposing. Slot s of the cache is token `s % block_size` of block `s // block_size`; block 0 is the null
block, where padding tokens write and nobody reads.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True)
class PagedBatch:
    """Where the T packed tokens come from. Sequence b has new tokens `offsets[b]:offsets[b + 1]`."""

    offsets: list[int]
    """B + 1 entries; tokens past the last one are padding."""
    starts: list[int]
    """Tokens of each sequence already in the cache; the new ones follow."""
    tables: torch.Tensor
    """[B, most blocks] int64: block numbers of each sequence, 0 beyond its end."""
    positions: torch.Tensor
    """[T] int64: position of each token in its sequence."""
    slots: torch.Tensor
    """[T] int64: cache slot that each token's K/V goes to."""
    block_size: int


class PagedKV:
    """The K/V tensors of all layers, allocated once."""

    def __init__(
        self, layers: int, kv_heads: int, num_blocks: int, block_size: int, head_dim: int,
        dtype: torch.dtype, device: torch.device,
    ) -> None:  # fmt: skip
        shape = (layers, kv_heads, num_blocks, block_size, head_dim)
        self.k = torch.zeros(shape, dtype=dtype, device=device)
        self.v = torch.zeros(shape, dtype=dtype, device=device)

    @property
    def num_bytes(self) -> int:
        return 2 * self.k.numel() * self.k.element_size()
