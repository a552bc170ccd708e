"""`SwapPool`: which block of CPU memory holds whose swapped-out KV.

A request leaves the KV pool block by block and comes back into other blocks; the copies themselves are the
executor's. Numbers that were used before are used again first, so memory is touched no further than needed.

Invariant: free + held = all. Plain integers; costs nothing for blocks never used.
"""

from __future__ import annotations


class SwapPool:
    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._returned: list[int] = []
        self._fresh = 0
        """Blocks from this number on were never taken."""

    @property
    def num_free(self) -> int:
        return len(self._returned) + self.num_blocks - self._fresh

    def take(self, count: int) -> list[int]:
        assert count <= self.num_free, f"take({count}) with {self.num_free} free"
        taken = [self._returned.pop() for _ in range(min(count, len(self._returned)))]
        new = count - len(taken)
        taken += range(self._fresh, self._fresh + new)
        self._fresh += new
        return taken

    def give_back(self, blocks: list[int]) -> None:
        self._returned.extend(reversed(blocks))

    def check(self, held: dict[str, list[int]]) -> None:
        """Prove the invariant against the blocks each request holds."""
        blocks = [block for table in held.values() for block in table] + self._returned
        assert sorted(blocks) == list(range(self._fresh)), "swap pool: a block twice or lost"
        assert self._fresh <= self.num_blocks
