"""`BatchRows`: per-request state of the batch as arrays, and the tensors of one iteration made from them.

A request keeps its row while it runs: its tokens and its block table are written once and then only appended to.
Building an iteration is a handful of numpy gathers over the rows in it, with no loop over tokens, and over requests
only for those that got blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from engine.plan import Plan
from engine.request import Request

IntArray = npt.NDArray[np.int64]


class Packed(NamedTuple):
    """Inputs of one forward pass; T is padded to a multiple of the rows asked for."""

    ids: IntArray
    positions: IntArray
    slots: IntArray
    tables: IntArray
    offsets: list[int]
    starts: list[int]
    ends: list[int]
    sampling: list[int]
    """Places of the items that sample."""


class BatchRows:
    def __init__(self, max_len: int, block_size: int, rows: int = 16) -> None:
        self.block_size = block_size
        self._tokens = np.zeros((rows, max_len + 1), np.int64)
        self._tables = np.zeros((rows, -(-max_len // block_size)), np.int64)
        self._used = np.zeros(rows, np.int64)
        """Blocks in each row's table."""
        self._computed = np.zeros(rows, np.int64)
        """Tokens of each row computed so far."""
        self._row: dict[str, int] = {}
        self._free = list(range(rows - 1, -1, -1))
        self._packed = self._ends = np.zeros(0, np.int64)
        """Rows of the last pack, and the positions after their last tokens."""

    def release(self, id: str) -> None:
        row = self._row.pop(id, None)
        if row is not None:
            self._free.append(row)

    def pack(self, plan: Plan, multiple: int) -> Packed:
        """The arrays of a plan, in its order. A request that is new here brings its whole table."""
        row, count = self._row, len(plan.ids)
        grown: list[int] = []
        blocks: list[int] = []
        for item, request in [pair for pair in zip(plan.scheduled, plan.requests, strict=True) if pair[0].new_blocks]:
            new = item.new_blocks
            if len(new) == 1 and item.id in row:
                grown.append(row[item.id])
                blocks += new
            else:
                self._place(request, new, item.computed_before)
        if grown:
            self._tables[grown, self._used[grown]] = blocks
            self._used[grown] += 1
        rows = np.fromiter(map(row.__getitem__, plan.ids), np.int64, count)
        first = self._computed[rows]
        total = plan.num_tokens
        if total == count:
            counts = np.ones(count, np.int64)
            offsets = np.arange(count + 1)
        else:
            counts = np.array([item.num_tokens for item in plan.scheduled], np.int64)
            offsets = np.zeros(count + 1, np.int64)
            np.cumsum(counts, out=offsets[1:])
        padded = -(-total // multiple) * multiple
        ids, positions, slots = (np.zeros(padded, np.int64) for _ in range(3))
        if total == count:
            owner, at = rows, first
        else:
            owner = np.repeat(rows, counts)
            at = np.arange(total) + np.repeat(first - offsets[:-1], counts)
        positions[:total] = at
        ids[:total] = self._tokens[owner, at]
        block, within = np.divmod(at, self.block_size)
        slots[:total] = self._tables[owner, block] * self.block_size + within
        tables = self._tables[rows, : int(self._used[rows].max())]
        self._packed, self._ends = rows, first + counts
        self._computed[rows] = self._ends
        return Packed(
            ids,
            positions,
            slots,
            tables,
            offsets.tolist(),
            first.tolist(),
            self._ends.tolist(),
            list(compress(range(count), plan.samples)),
        )

    def append(self, places: Sequence[int], tokens: Sequence[int]) -> None:
        """The tokens sampled for the items at these places of the last pack; negative ones are none."""
        rows, ends, new = self._packed, self._ends, np.array(tokens, np.int64)
        if len(new) < len(rows):
            rows, ends = rows[places], ends[places]
        usable = new >= 0
        if not usable.all():
            rows, ends, new = rows[usable], ends[usable], new[usable]
        self._tokens[rows, ends] = new

    def _place(self, request: Request, new_blocks: Sequence[int], start: int) -> None:
        """Bring a request's row up to date; `start` of its tokens are computed."""
        row = self._row.get(request.id)
        if row is None:
            row = self._row[request.id] = self._take_row()
            known = request.token_ids
            self._tokens[row, : len(known)] = known
            self._computed[row] = start
            used = 0
        else:
            used = int(self._used[row])
        upto = used + len(new_blocks)
        self._tables[row, used:upto] = new_blocks
        if not used:
            self._tables[row, upto:] = 0
        self._used[row] = upto

    def _take_row(self) -> int:
        if not self._free:
            rows = len(self._used)
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
            self._tables = np.concatenate([self._tables, np.zeros_like(self._tables)])
            self._used = np.concatenate([self._used, np.zeros_like(self._used)])
            self._computed = np.concatenate([self._computed, np.zeros_like(self._computed)])
            self._free = list(range(2 * rows - 1, rows - 1, -1))
        return self._free.pop()
