"""What one request did, a byte for each step.

Steps in which nothing is told about it are its `idle` ones (it waits, in the queue or in the swap pool), and are not
stored until something is: a queue of thousands costs nothing while it waits.
"""

from __future__ import annotations

from engine.records import Preempted
from workbench.model.cells import Cell

_BLANK = bytes((Cell.BLANK,))

MOST_PREEMPTED = 64


class Row:
    __slots__ = ("admitted", "codes", "id", "idle", "keep", "preempted", "start")

    def __init__(self, id: str, start: int, keep: int) -> None:
        self.id = id
        self.start = start
        """Step of codes[0]."""
        self.codes = bytearray()
        self.idle = Cell.WAIT
        """What it does in the steps after the last one put, until something else is told."""
        self.preempted: list[tuple[int, Preempted]] = []
        """When and why, the newest MOST_PREEMPTED."""
        self.admitted: int | None = None
        """Its place in the order of first admissions."""
        self.keep = keep

    def put(self, step: int, code: int) -> None:
        """`code` for a step not before the last one put; in the same step the larger stays."""
        gap = step - self.start - len(self.codes)
        if gap < 0:
            if not self.codes:
                self.start = step
                self.codes.append(code)
            elif gap == -1:
                self.codes[-1] = max(self.codes[-1], code)
            return
        if gap > self.keep:
            self.start, gap = step - self.keep, self.keep
            self.codes = bytearray()
        if gap:
            self.codes += bytes((self.idle,)) * gap
        self.codes.append(code)
        if len(self.codes) > 2 * self.keep:
            cut = len(self.codes) - self.keep
            del self.codes[:cut]
            self.start += cut

    def rest(self, step: int, idle: Cell) -> None:
        """What was idle up to `step` stays as it was; from then on it is `idle`."""
        gap = step + 1 - self.start - len(self.codes)
        if self.idle is not Cell.WAIT and gap > 0:
            self.put(step, self.idle)
        self.idle = idle

    def cells(self, start: int, stop: int, now: int) -> bytes:
        """Codes of the steps start..stop-1; `now` is the newest step there is."""
        a, b = start - self.start, stop - self.start
        n = len(self.codes)
        out = bytes(self.codes[max(0, a) : max(0, b)])
        if a < 0:
            out = _BLANK * min(-a, stop - start) + out
        missing = stop - start - len(out)
        if missing > 0:
            live = max(0, min(missing, now + 1 - max(start, self.start + n)))
            out += bytes((self.idle,)) * live + _BLANK * (missing - live)
        return out


def squeeze(codes: bytes, first_step: int, per_column: int) -> bytes:
    """One code for every `per_column` steps, columns starting at multiples of it; the largest wins."""
    if per_column <= 1:
        return codes
    head = (-first_step) % per_column
    parts = [codes[:head]] if head else []
    parts += [codes[i : i + per_column] for i in range(head, len(codes), per_column)]
    return bytes(max(part) for part in parts)
