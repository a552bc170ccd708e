"""`BatchRows`: per-request state of the batch as arrays, and the tensors of one iteration made from them.

A request keeps its row while it runs: its tokens and its block table are written once and then only appended to.
Building an iteration is a handful of numpy gathers over the rows in it, with no loop over tokens.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.plan import PlanItem

IntArray = npt.NDArray[np.int64]


class Packed(NamedTuple):
    """Inputs of one forward pass; T is padded to a multiple of the rows asked for."""

    ids: IntArray
    positions: IntArray
    slots: IntArray
    tables: IntArray
    offsets: list[int]
    starts: list[int]


class BatchRows:
    def __init__(self, max_len: int, block_size: int, rows: int = 16) -> None:
        self.block_size = block_size
        self._tokens = np.zeros((rows, max_len + 1), np.int64)
        self._tables = np.zeros((rows, -(-max_len // block_size)), np.int64)
        self._used = np.zeros(rows, np.int64)
        """Blocks in each row's table."""
        self._row: dict[str, int] = {}
        self._free = list(range(rows - 1, -1, -1))

    def release(self, id: str) -> None:
        row = self._row.pop(id, None)
        if row is not None:
            self._free.append(row)

    def append(self, id: str, position: int, token: int) -> None:
        """The token sampled for `position` of a request."""
        self._tokens[self._row[id], position] = token

    def pack(self, items: list[PlanItem], multiple: int) -> Packed:
        """The arrays for a plan's items, in their order."""
        count = len(items)
        rows = np.empty(count, np.int64)
        starts = [item.start for item in items]
        counts = np.empty(count, np.int64)
        for index, item in enumerate(items):
            rows[index] = self._place(item)
            counts[index] = item.num_tokens
        offsets = np.zeros(count + 1, np.int64)
        np.cumsum(counts, out=offsets[1:])
        total = int(offsets[-1])
        padded = -(-total // multiple) * multiple
        ids, positions, slots = (np.zeros(padded, np.int64) for _ in range(3))
        owner = np.repeat(rows, counts)
        at = np.arange(total) + np.repeat(np.asarray(starts, np.int64) - offsets[:-1], counts)
        positions[:total] = at
        ids[:total] = self._tokens[owner, at]
        slots[:total] = self._tables[owner, at // self.block_size] * self.block_size + at % self.block_size
        tables = self._tables[rows, : int(self._used[rows].max())]
        return Packed(ids, positions, slots, tables, offsets.tolist(), starts)

    def _place(self, item: PlanItem) -> int:
        """The row of an item's request, brought up to date."""
        request = item.request
        row = self._row.get(request.id)
        if row is None:
            row = self._row[request.id] = self._take_row()
            known = request.token_ids
            self._tokens[row, : len(known)] = known
            used = 0
        else:
            used = int(self._used[row])
        if item.new_blocks:
            upto = used + len(item.new_blocks)
            self._tables[row, used:upto] = item.new_blocks
            self._tables[row, upto:] = 0
            self._used[row] = upto
        return row

    def _take_row(self) -> int:
        if not self._free:
            rows = len(self._used)
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
            self._tables = np.concatenate([self._tables, np.zeros_like(self._tables)])
            self._used = np.concatenate([self._used, np.zeros_like(self._used)])
            self._free = list(range(2 * rows - 1, rows - 1, -1))
        return self._free.pop()
