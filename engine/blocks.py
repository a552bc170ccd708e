"""`BlockPool`: which KV block belongs to whom, what it holds, and which one is taken next.

Block 0 is the null block: never given out, never free; padding writes go there. A block with reference count 0
sits in the free queue; with prefix caching it may still carry a content key, and is then free *and* of use until
somebody takes it. Allocation takes from the front of the queue. Semantics: vLLM V1's block pool.

Blocks can be switched off and on again while others are in use (`resize`): the pool of a running engine shrinks.

Invariant: free + referenced + off = all but the null block; every key in the index is carried by the blocks listed
under it, in order of registration. `check()` proves it. Plain integers only: no tensors, no clock.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

from engine.records import BlockChange

ROOT_KEY = b""
OFF = -1
"""Reference count of a block that is switched off."""


def content_key(parent: bytes, tokens: Sequence[int]) -> bytes:
    """Key of a full block: stands for all tokens up to its end. 128 bits: a collision would serve foreign K/V."""
    return hashlib.blake2b(array("q", tokens).tobytes(), key=parent, digest_size=16).digest()


class BlockPool:
    """Reference counts, free queue and prefix-cache index over `num_blocks` blocks (the null block included)."""

    def __init__(self, num_blocks: int, *, caching: bool) -> None:
        if num_blocks < 2:
            raise ValueError(f"a pool needs the null block and one more, got {num_blocks}")
        self.num_blocks = num_blocks
        self.caching = caching
        self.ref = [0] * num_blocks
        self.ref[0] = 1
        self.key: list[bytes | None] = [None] * num_blocks
        self.owner: list[str | None] = [None] * num_blocks
        """First holder, for people; sharers are in `_holders`."""
        self.num_free = num_blocks - 1
        self._off: list[int] = []
        """Switched-off blocks, their reference count is OFF."""
        self._holders: dict[int, list[str]] = {}
        self._index: dict[bytes, int | dict[int, None]] = {}
        """Blocks by key: the only one, or all of them in order of registration."""
        self._changed: dict[int, None] = {}
        # The free queue is a ring of block numbers; the null block, never free, is its sentinel.
        self._next = [*range(1, num_blocks), 0]
        self._prev = [num_blocks - 1, *range(num_blocks - 1)]

    @property
    def num_usable(self) -> int:
        """Blocks that requests can have: without the null block and those switched off."""
        return self.num_blocks - 1 - len(self._off)

    @property
    def num_off(self) -> int:
        return len(self._off)

    def resize(self, usable: int) -> None:
        """Switch blocks off or on until `usable` are left. Those that go are free ones, in order of eviction."""
        surplus = self.num_usable - usable
        assert surplus <= self.num_free and usable <= self.num_blocks - 1, f"resize({usable}), {self.num_free} free"
        if surplus > 0:
            gone = self.take(surplus, "")
            for block in gone:
                self.ref[block], self.owner[block] = OFF, None
            self._off += gone
        elif surplus < 0:
            back, self._off = self._off[surplus:], self._off[:surplus]
            for block in sorted(back, reverse=True):
                self.ref[block] = 0
                self._changed[block] = None
            self._link_after(0, sorted(back))

    def take(self, count: int, owner: str) -> list[int]:
        """The `count` front blocks of the free queue, with one reference each. They lose their keys."""
        assert count <= self.num_free, f"take({count}) with {self.num_free} free"
        taken = []
        following, keys, refs, owners, changed = self._next, self.key, self.ref, self.owner, self._changed
        block = following[0]
        for _ in range(count):
            taken.append(block)
            block = following[block]
        following[0] = block
        self._prev[block] = 0
        self.num_free -= count
        for block in taken:
            if keys[block] is not None:
                self._drop_key(block)
            refs[block] = 1
            owners[block] = owner
            changed[block] = None
        return taken

    def share(self, blocks: Sequence[int], owner: str) -> None:
        """One more reference on each of the cached `blocks`; free ones leave the queue."""
        for block in blocks:
            if self.ref[block] == 0:
                self._unlink(block)
                self.owner[block] = owner
            else:
                first = self.owner[block]
                assert first is not None
                self._holders.setdefault(block, [first]).append(owner)
            self.ref[block] += 1
            self._changed[block] = None

    def release(self, table: Sequence[int], owner: str) -> None:
        """Give back one reference on each block of a table.

        From last block to first; keyless ones that become free go as a group to the front of the queue (so the
        partial block is reused next), keyed ones to the end (tail of the sequence is evicted before its beginning).
        """
        front: list[int] = []
        back: list[int] = []
        keys, refs, owners, changed = self.key, self.ref, self.owner, self._changed
        for block in reversed(table):
            left = refs[block] - 1
            assert left >= 0, f"block {block} released twice"
            refs[block] = left
            changed[block] = None
            if left:
                holders = self._holders[block]
                holders.remove(owner)
                owners[block] = holders[0]
                if len(holders) == 1:
                    del self._holders[block]
                continue
            owners[block] = None
            (front if keys[block] is None else back).append(block)
        self._link_after(self._prev[0], back)
        self._link_after(0, front)

    # ---- prefix cache -----------------------------------------------------------------------------

    def register(self, block: int, key: bytes) -> None:
        """List a referenced block under its content key."""
        self.key[block] = key
        self._changed[block] = None
        listed = self._index.setdefault(key, block)
        if listed != block:
            blocks = self._index[key] = listed if isinstance(listed, dict) else {listed: None}
            blocks[block] = None

    def forget(self, block: int) -> None:
        """Take a block's key away, e.g. because its K/V will not be written after all."""
        if self.key[block] is not None:
            self._drop_key(block)

    def lookup(self, key: bytes) -> int | None:
        """The earliest registered block that still carries `key`."""
        listed = self._index.get(key)
        return next(iter(listed)) if isinstance(listed, dict) else listed

    def reset(self) -> bool:
        """Drop all keys; only when no block is referenced. The queue keeps its order."""
        if self.num_free != self.num_usable:
            return False
        for block in self.free_queue():
            self.forget(block)
        return True

    # ---- for the record and for tests -------------------------------------------------------------

    def changes(self) -> tuple[BlockChange, ...]:
        """Blocks that changed since the last call."""
        new, owners, refs, keys = tuple.__new__, self.owner, self.ref, self.key
        changed = tuple([new(BlockChange, (b, owners[b], refs[b], keys[b] is not None)) for b in self._changed])
        self._changed.clear()
        return changed

    def free_queue(self) -> list[int]:
        """Free blocks, next one first."""
        queue, block = [], self._next[0]
        while block:
            queue.append(block)
            block = self._next[block]
        return queue

    def check(self, tables: dict[str, list[int]]) -> None:
        """Prove the invariants against the tables of all requests; AssertionError names what is broken."""
        queue = self.free_queue()
        assert len(queue) == len(set(queue)) == self.num_free, "free queue: a block twice or lost"
        assert all(self._prev[self._next[b]] == b for b in [0, *queue]), "free queue: links disagree"
        count = [0] * self.num_blocks
        count[0] = 1
        for table in tables.values():
            for block in table:
                count[block] += 1
        for block in self._off:
            assert count[block] == 0 and self.key[block] is None, "a block that is switched off is in use"
            count[block] = OFF
        assert self.num_free + sum(n > 0 for n in count[1:]) + self.num_off == self.num_blocks - 1, "blocks are lost"
        assert count == self.ref, "reference counts differ from the tables"
        assert {b for b in range(1, self.num_blocks) if not self.ref[b]} == set(queue), "free but not in the queue"
        listed = {key: [held] if isinstance(held, int) else list(held) for key, held in self._index.items()}
        for key, blocks in listed.items():
            assert blocks and all(self.key[b] == key for b in blocks), "index lists a block under a key it lost"
        assert sum(map(len, listed.values())) == sum(k is not None for k in self.key), "a key not in the index"
        holders: dict[int, set[str]] = {}
        for id, table in tables.items():
            for block in table:
                holders.setdefault(block, set()).add(id)
        for block, owner in enumerate(self.owner):
            assert owner in holders[block] if block in holders else owner is None, f"owner of block {block}"

    def _drop_key(self, block: int) -> None:
        key = self.key[block]
        assert key is not None
        listed = self._index[key]
        if isinstance(listed, dict) and len(listed) > 1:
            del listed[block]
        else:
            del self._index[key]
        self.key[block] = None
        self._changed[block] = None

    def _unlink(self, block: int) -> None:
        before, after = self._prev[block], self._next[block]
        self._next[before] = after
        self._prev[after] = before
        self.num_free -= 1

    def _link_after(self, before: int, blocks: Sequence[int]) -> None:
        following, previous = self._next, self._prev
        after = following[before]
        for block in blocks:
            following[before], previous[block] = block, before
            before = block
        following[before], previous[after] = after, before
        self.num_free += len(blocks)
