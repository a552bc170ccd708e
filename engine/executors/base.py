"""`Executor`: what runs a plan. The scheduler decides, an executor computes, and neither looks into the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from engine.plan import Plan

UNSAMPLED = -1
"""In place of a token where the model's logits were not finite."""


class Sampled(NamedTuple):
    """One entry a plan item, in order: the new token, None where the item does not sample, UNSAMPLED on bad logits."""

    tokens: list[int | None]
    build: float
    """Seconds to make tensors of the plan."""
    forward: float
    sample: float


def spread(places: Sequence[int], tokens: Sequence[int], count: int) -> list[int | None]:
    """The tokens sampled for some of `count` items, as `Sampled.tokens` has them."""
    if len(tokens) == count:
        return list(tokens)
    out: list[int | None] = [None] * count
    for place, token in zip(places, tokens, strict=True):
        out[place] = token
    return out


class Executor(Protocol):
    def execute(self, plan: Plan) -> Sampled:
        """Run exactly what the plan says (one item or more) and leave the K/V in its blocks."""
        ...

    def copy_blocks(self, out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        """Copy K/V to the swap pool and back, `out` first: (pool block, swap block), then (swap block, pool block).

        Returns the bytes copied. Done when it returns.
        """
        ...

    def release(self, id: str) -> None:
        """A request left the batch (finished, aborted or preempted): forget its row. Unknown ids are ignored."""
        ...
