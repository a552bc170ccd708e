"""`SwapPool`: which block of CPU memory holds whose swapped-out KV.

A request leaves the KV pool block by block and comes back into other blocks; the copies themselves are the
executor's. Invariant: free + held = all. Plain integers.
"""

from __future__ import annotations


class SwapPool:
    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._free = list(range(num_blocks - 1, -1, -1))

    @property
    def num_free(self) -> int:
        return len(self._free)

    def take(self, count: int) -> list[int]:
        assert count <= len(self._free), f"take({count}) with {len(self._free)} free"
        taken = self._free[len(self._free) - count :]
        del self._free[len(self._free) - count :]
        return taken[::-1]

    def give_back(self, blocks: list[int]) -> None:
        self._free.extend(reversed(blocks))

    def check(self, held: dict[str, list[int]]) -> None:
        """Prove the invariant against the blocks each request holds."""
        blocks = [block for table in held.values() for block in table] + self._free
        assert sorted(blocks) == list(range(self.num_blocks)), "swap pool: a block twice or lost"
