"""How much of the prompts an endless prefix cache would have had: the most that any cache can give on this file.

A block of a prompt is a hit when an earlier row of the file began with the same blocks up to and including it. Blocks
are told apart by the ids before them too (a chain), and by the tokens they cover: the same id cut shorter at the end of
a prompt is another block. Rows count in the order of the file.

Memory is bounded: beyond MOST distinct blocks only one in two is followed, then one in four, and so on, chosen by the
hash of the chain, and the figures become estimates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from traces.keyset import KeySet
from traces.rows import Ints

MOST = 1 << 19
"""Blocks that are remembered: more than a whole public Mooncake trace has. Twice as many cost a fifth of the speed."""
AT_ONCE = 1 << 13
"""Rows whose blocks are worked on together: more would leave the processor's cache, and take much memory."""
TOGETHER = 1 << 16
"""Blocks that are looked up together."""
LENGTH_BITS = np.uint64(20)
LENGTH = np.uint64((1 << 20) - 1)
"""The low bits of a key tell how many tokens its block covers; 44 bits of hash are left."""
Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ReuseFigures:
    rows: int
    """Rows with prefix ids."""
    blocks: int
    block_sizes: tuple[int, ...]
    """Distinct sizes when each row has one size for all its ids; empty when ids have lengths of their own."""
    hit_blocks: int
    hit_tokens: int
    one_in: int
    """1: every block was followed and the figures are exact."""


class Reuse:
    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._seen = KeySet()
        self._waiting: list[Keys] = []
        """Followed keys that have not been looked up yet."""
        self._number_waiting = 0
        self._one_in = 1
        self.rows = self.blocks = 0
        self.hit_blocks = self.hit_tokens = 0
        self._sizes: set[int] = set()
        self._uneven = False

    def add(self, rows: Sequence[dict[str, Any]], prompt_len: Ints) -> None:
        """rows: `more` of each row, those without `prefix_ids` are passed over."""
        picked = [place for place, more in enumerate(rows) if more.get("prefix_ids")]
        for start in range(0, len(picked), AT_ONCE):
            self._add(rows, prompt_len, picked[start : start + AT_ONCE])

    def _add(self, rows: Sequence[dict[str, Any]], prompt_len: Ints, picked: list[int]) -> None:
        ids = [rows[place]["prefix_ids"] for place in picked]
        lens = [rows[place].get("prefix_lens") or (1,) for place in picked]
        per_row = np.array(list(map(len, ids)), np.int64)
        total = int(per_row.sum())
        starts = np.cumsum(per_row) - per_row
        """Place of each row's first block."""
        position = np.arange(total) - np.repeat(starts, per_row)
        covered = self._covered(lens, per_row, prompt_len[picked], starts, position)
        keys = _chain(_flat(ids, total), covered, position, starts, per_row)
        if covered.min() <= 0:
            keys = keys[covered > 0]
        self.rows += len(picked)
        self.blocks += len(keys)
        followed = keys[self._followed(keys)]
        self._waiting.append(followed)
        self._number_waiting += len(followed)
        if self._number_waiting >= TOGETHER:
            self._count()

    def _covered(
        self, lens: list[Sequence[int]], per_row: Ints, prompt_len: Ints, starts: Ints, position: Ints
    ) -> Ints:
        """Prompt tokens under each block."""
        if all(len(given) == 1 for given in lens):
            size = np.array([given[0] for given in lens], np.int64)
            self._sizes.update(np.unique(size).tolist())
            covered = np.repeat(size, per_row)
            last = prompt_len - size * (per_row - 1)
            if (last >= 0).all():  # as nearly always: all blocks but the last of a row are full
                covered[starts + per_row - 1] = np.minimum(last, size)
                return covered
            return np.clip(np.repeat(prompt_len, per_row) - position * covered, 0, covered)
        self._uneven = True
        full = np.array(
            list(
                chain.from_iterable(
                    given if len(given) == count else (given[0],) * count
                    for given, count in zip(lens, per_row.tolist(), strict=True)
                )
            ),
            np.int64,
        )
        before = np.cumsum(full) - full
        before -= np.repeat(before[starts], per_row)
        return np.clip(np.repeat(prompt_len, per_row) - before, 0, full)

    def _count(self) -> None:
        """Look up the keys that wait."""
        if not self._waiting:
            return
        followed = np.concatenate(self._waiting)
        self._waiting, self._number_waiting = [], 0
        fresh = self._seen.add(followed)
        # Blocks of one key cover equally many tokens, and all but the first of its blocks are hits.
        self.hit_blocks += (len(followed) - len(fresh)) * self._one_in
        self.hit_tokens += (int((followed & LENGTH).sum()) - int((fresh & LENGTH).sum())) * self._one_in
        while len(self._seen) > self._most:
            self._one_in *= 2
            keys = self._seen.keys()
            self._seen = KeySet()
            self._seen.add(keys[self._followed(keys)])

    def _followed(self, keys: Keys) -> npt.NDArray[np.bool_]:
        chosen: npt.NDArray[np.bool_] = (keys >> LENGTH_BITS) & np.uint64(self._one_in - 1) == 0
        return chosen

    def figures(self) -> ReuseFigures:
        self._count()
        sizes = () if self._uneven else tuple(sorted(self._sizes))
        return ReuseFigures(self.rows, self.blocks, sizes, self.hit_blocks, self.hit_tokens, self._one_in)


def _flat(ids: list[Sequence[int]], total: int) -> Keys:
    try:
        return np.fromiter(chain.from_iterable(ids), np.uint64, total)
    except (OverflowError, ValueError):  # below 0 or beyond 64 bits
        return np.fromiter((hash(id) & (1 << 64) - 1 for id in chain.from_iterable(ids)), np.uint64, total)


def _chain(ids: Keys, covered: Ints, position: Ints, starts: Ints, per_row: Ints) -> Keys:
    """A hash of each block together with all blocks before it in its row, and the tokens it covers."""
    tokens = covered.astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = _mix(ids)
        mixed += position.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        mixed += tokens * np.uint64(0xD1B54A32D192ED03)
        mixed = _mix(mixed)
        sums = np.cumsum(mixed, dtype=np.uint64)
        chain_of = _mix(sums - np.repeat((sums - mixed)[starts], per_row))
    return chain_of & ~LENGTH | np.minimum(tokens, LENGTH)


def _mix(x: Keys) -> Keys:
    """The finaliser of splitmix64 (S. Vigna): every bit of the input changes half of the output's."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
