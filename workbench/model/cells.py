"""What a request did in an iteration, as one byte.

The numbers are ordered by how much they matter: where several iterations share a column the largest wins.
"""

from __future__ import annotations

from enum import IntEnum


class Cell(IntEnum):
    BLANK = 0
    """Before it arrived, after it ended."""
    WAIT = 1
    SWAPPED = 2
    """Waits with its KV in the swap pool."""
    HELD = 3
    """Ended, but its slot of the static batch stays taken."""
    DECODE = 4
    PREFILL_1 = 5
    """Up to a quarter of the iteration's budget, and so on."""
    PREFILL_2 = 6
    PREFILL_3 = 7
    PREFILL_4 = 8
    RECOMPUTE = 9
    SWAP_IN = 10
    SWAP_OUT = 11
    PREEMPTED = 12
    FINISHED = 13
    CUT = 14
    """Finished, with fewer tokens than it asked for."""
    ABORTED = 15


def prefill_cell(num_tokens: int, budget: int) -> Cell:
    """By quarter of the budget, rounded up."""
    quarter = -(-4 * num_tokens // max(1, budget))
    return Cell(Cell.PREFILL_1 - 1 + min(4, max(1, quarter)))
