"""`SwapKV`: CPU memory for KV that is swapped out, and the copies to it and back.

The memory is taken when the first block is swapped out, and the operating system gives pages of it as they are
written: a large `swap_space` costs nothing until it is used.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.api import PagedKV


class SwapKV:
    """As many blocks as the scheduler's `SwapPool` counts."""

    def __init__(self, kv: PagedKV, num_blocks: int) -> None:
        self._kv = kv
        self._num_blocks = num_blocks
        self._k: torch.Tensor | None = None
        self._v: torch.Tensor | None = None

    @torch.inference_mode()
    def copy(self, out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        """`out`: (pool block, swap block), copied first; `back`: (swap block, pool block). Returns the bytes copied."""
        kv = self._kv
        if self._k is None or self._v is None:
            layers, heads, _, *block = kv.k.shape
            shape = (layers, heads, self._num_blocks, *block)
            pinned = kv.k.is_cuda
            self._k = torch.empty(shape, dtype=kv.k.dtype, pin_memory=pinned)
            self._v = torch.empty(shape, dtype=kv.v.dtype, pin_memory=pinned)
        for pool, swap in ((kv.k, self._k), (kv.v, self._v)):
            if out:
                source, target = _columns(out)
                swap[:, :, target] = pool[:, :, source.to(pool.device)].to("cpu")
            if back:
                source, target = _columns(back)
                pool[:, :, target.to(pool.device)] = swap[:, :, source].to(pool.device)
        layers, heads, _, size, dim = kv.k.shape
        return 2 * layers * heads * size * dim * kv.k.element_size() * (len(out) + len(back))


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.tensor(pairs)
    return table[:, 0], table[:, 1]
