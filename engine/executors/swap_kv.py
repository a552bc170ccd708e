"""`SwapKV`: CPU memory for KV that is swapped out, and the copies to it and back.

Memory is taken as far as blocks are used: a large `swap_space` costs nothing until then.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kernels.api import PagedKV

FIRST = 64
"""Blocks taken at first; each time they do not suffice, twice as many."""


class SwapKV:
    """As many blocks as the scheduler's `SwapPool` counts."""

    def __init__(self, kv: PagedKV, num_blocks: int) -> None:
        self._kv = kv
        self._num_blocks = num_blocks
        self._k, self._v = self._empty(0), self._empty(0)

    @torch.inference_mode()
    def copy(self, out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        """`out`: (pool block, swap block), copied first; `back`: (swap block, pool block). Returns the bytes copied."""
        kv = self._kv
        if out:
            self._reach(max(block for _, block in out))
        for pool, swap in ((kv.k, self._k), (kv.v, self._v)):
            if out:
                source, target = _columns(out)
                swap[:, :, target] = pool[:, :, source.to(pool.device)].to("cpu")
            if back:
                source, target = _columns(back)
                pool[:, :, target.to(pool.device)] = swap[:, :, source].to(pool.device)
        block = 2 * kv.k[:, :, 0].numel() * kv.k.element_size()
        return block * (len(out) + len(back))

    def _reach(self, last: int) -> None:
        """Have memory up to block `last`."""
        have = self._k.shape[2]
        if last < have:
            return
        most = min(self._num_blocks, max(FIRST, 2 * have, last + 1))
        for name in ("_k", "_v"):
            larger = self._empty(most)
            larger[:, :, :have] = getattr(self, name)
            setattr(self, name, larger)

    def _empty(self, blocks: int) -> torch.Tensor:
        layers, heads, _, *block = self._kv.k.shape
        return torch.empty((layers, heads, blocks, *block), dtype=self._kv.k.dtype, pin_memory=self._kv.k.is_cuda)


def _columns(pairs: Sequence[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
    table = torch.tensor(pairs)
    return table[:, 0], table[:, 1]
