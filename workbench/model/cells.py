"""What a request did in an iteration, as one byte.

The numbers are ordered by how much they matter: where several iterations share a column the largest wins.
"""

from __future__ import annotations

from enum import IntEnum


class Cell(IntEnum):
    BLANK = 0
    """Before it arrived, after it ended."""
    WAIT = 1
    DECODE = 2
    PREFILL_1 = 3
    """Up to a quarter of the iteration's budget, and so on."""
    PREFILL_2 = 4
    PREFILL_3 = 5
    PREFILL_4 = 6
    RECOMPUTE = 7
    PREEMPTED = 8
    FINISHED = 9
    ABORTED = 10


def prefill_cell(num_tokens: int, budget: int) -> Cell:
    """By quarter of the budget, rounded up."""
    quarter = -(-4 * num_tokens // max(1, budget))
    return Cell(Cell.PREFILL_1 - 1 + min(4, max(1, quarter)))
