"""Random numbers that are the same everywhere, and as evenly spread as their number allows.

Invariant: a stream is fixed by its name and the seed, and drawing more from one stream changes no other. Only
`random.Random(int).random()` is used, which Python promises not to change; shuffles and choices are made of it here.

Why strata: of n independent draws the median is off by 3 to 6 % for lengths as skewed as real ones at n = 2,000, and
the coefficient of variation of bursty gaps by 15 % and more. One draw from each of n equal parts of the distribution,
in random order, keeps both within a few per mille at any n, so that a small run is like a large one.
"""

from __future__ import annotations

import hashlib
import random
from bisect import bisect_right
from collections.abc import MutableSequence, Sequence
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """One stream. `name` is what it is for: `chat/lengths`."""

    def __init__(self, seed: int, name: str) -> None:
        key = hashlib.blake2b(f"{seed}\0{name}".encode(), digest_size=16).digest()
        self.random = random.Random(int.from_bytes(key, "big")).random

    def below(self, n: int) -> int:
        """0..n-1, each as likely."""
        return min(int(self.random() * n), n - 1)

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.random()

    def shuffle(self, items: MutableSequence[T]) -> None:
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]

    def ascending(self, n: int) -> list[float]:
        """One number from each n-th part of 0..1, in order."""
        return [(part + self.random()) / n for part in range(n)]

    def strata(self, n: int) -> list[float]:
        """One number from each n-th part of 0..1, in random order."""
        numbers = self.ascending(n)
        self.shuffle(numbers)
        return numbers

    def shared(self, items: Sequence[T], weights: Sequence[float], n: int) -> list[T]:
        """n items in random order, each as often as its weight says (off by less than one or two)."""
        edges = list(accumulate(weights))
        last = len(items) - 1
        return [items[min(bisect_right(edges, part * edges[-1]), last)] for part in self.strata(n)]


class Supply:
    """Evenly spread numbers without end, where nobody knows how many are needed: strata of 20, one after another."""

    POOL = 20

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._left: list[float] = []

    def __call__(self) -> float:
        if not self._left:
            self._left = self._draw.strata(self.POOL)
        return self._left.pop()


def zipf(n: int, power: float = 1.0) -> list[float]:
    """Weights of ranks 1..n."""
    return [rank**-power for rank in range(1, n + 1)]


def apportion(n: int, weights: Sequence[float]) -> list[int]:
    """n in whole parts as close to the weights as can be: largest remainders, first come first on a tie."""
    total = sum(weights)
    exact = [n * weight / total for weight in weights]
    parts = [int(part) for part in exact]
    order = sorted(range(len(parts)), key=lambda place: parts[place] - exact[place])
    for place in order[: n - sum(parts)]:
        parts[place] += 1
    return parts
