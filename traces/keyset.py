"""A set of 64-bit keys that takes whole arrays at once: a hash table in one NumPy array, with open addressing.

Looking up a key costs one or two reads from memory; in sorted arrays it would cost one for each bit of its place. The
table is at most two thirds full. A call costs about 0.3 ms whatever it is given: give it many keys.

Keys have to be well mixed in the bits above the lowest SKIPPED: these choose the place.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Places = npt.NDArray[np.int64]

SMALLEST = 1 << 12
SKIPPED = 26
"""Low bits of a key that do not choose its place."""
_FREE = np.uint64(0)


class KeySet:
    def __init__(self) -> None:
        self._table: Keys = np.zeros(SMALLEST, np.uint64)
        self._number = 0
        self._zero = False
        """Whether 0 is in: in the table it stands for a free place."""

    def __len__(self) -> int:
        return self._number + self._zero

    def keys(self) -> Keys:
        """In no order."""
        found = self._table[self._table != _FREE]
        return np.append(found, _FREE) if self._zero else found

    def add(self, keys: Keys) -> Keys:
        """Take them in, and return those that were not there before, each once, in no order."""
        zeros = keys == _FREE
        new = [keys[:0]]
        if zeros.any():
            if not self._zero:
                self._zero = True
                new.append(np.zeros(1, np.uint64))
            keys = keys[~zeros]
        self._grow(len(keys))
        new.extend(self._put(keys))
        return np.concatenate(new)

    def _grow(self, more: int) -> None:
        """Room for that many, which may all be new."""
        size = len(self._table)
        if 3 * (self._number + more) <= 2 * size:
            return
        while 3 * (self._number + more) > 2 * size:
            size *= 2
        old = self._table[self._table != _FREE]
        self._table = np.zeros(size, np.uint64)
        self._number = 0
        self._put(old)

    def _put(self, keys: Keys) -> list[Keys]:
        table, mask = self._table, np.int64(len(self._table) - 1)
        new: list[Keys] = []
        places: Places = (keys >> np.uint64(SKIPPED)).astype(np.int64) & mask
        while len(keys):
            there = table[places]
            free = there == _FREE
            if free.any():
                # Of several that want one free place the last gets it; the others find it taken.
                where = places[free]
                table[where] = keys[free]
                where.sort()
                new.append(table[where[np.diff(where, prepend=-1) != 0]])
                self._number += len(new[-1])
                there = table[places]
            left = there != keys
            keys, places = keys[left], (places[left] + 1) & mask
        return new
