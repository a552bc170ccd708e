"""An executor without a model: made-up tokens, and a memory that notices K/V never written or of somebody else."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from engine.clock import Clock, ManualClock
from engine.config import EngineConfig
from engine.engine import Engine
from engine.executors.base import UNSAMPLED, Sampled
from engine.plan import Plan
from engine.tokenizer import Tokenizer


def made_up(id: str, position: int) -> int:
    """A token that depends on request and position alone, as a seeded model's would: bytes that print."""
    return 32 + random.Random(f"{id}:{position}").randrange(95)


class FakeExecutor:
    """Keeps, for every slot of the pool, which token sequence its K/V stands for.

    All of a batch's K/V are written, then every item reads its whole context. A slot that holds something else than
    the request's own beginning (a block used twice, a prefix hit on foreign or unwritten data) fails the test.
    """

    def __init__(self, config: EngineConfig, tokens: Callable[[str, int], int] = made_up) -> None:
        self.block_size = config.block_size
        self.tokens = tokens
        self.calls = 0
        self.reads = True
        """Check the whole context of every item; off where long runs are only about the schedule."""
        self.released: list[str] = []
        self.hook: Callable[[Plan], None] = lambda plan: None
        self._kv: dict[int, int] = {}
        self._swapped: dict[int, list[int | None]] = {}
        self._chains: dict[str, list[int]] = {}

    def execute(self, plan: Plan) -> Sampled:
        assert plan.items, "nothing to run"
        self.calls += 1
        self.hook(plan)
        for item in plan.items:
            for position in range(item.start, item.start + item.num_tokens):
                self._kv[self._slot(item, position)] = self._chain(item, position)
        for item in plan.items:
            upto = item.start + item.num_tokens
            assert item.request.num_computed == upto <= item.request.num_tokens
            assert len(item.request.block_table) == -(-upto // self.block_size), "blocks are not ceil(computed / size)"
            assert 0 not in item.request.block_table
            for position in range(upto if self.reads else 0):
                assert self._kv.get(self._slot(item, position)) == self._chain(item, position), (
                    f"{item.request.id} reads foreign or unwritten K/V at {position}"
                )
            assert item.samples == (upto == item.request.num_tokens)
        sampled = [
            self.tokens(item.request.id, item.start + item.num_tokens) if item.samples else None for item in plan.items
        ]
        return Sampled(list(sampled), 0.0, 0.0, 0.0)

    def copy_blocks(self, out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        assert not (out and back), "in and out in one iteration"
        size = self.block_size
        for block, swap in out:
            self._swapped[swap] = [self._kv.get(block * size + n) for n in range(size)]
        for swap, block in back:
            for n, chain in enumerate(self._swapped.pop(swap)):
                self._kv.pop(block * size + n, None)
                if chain is not None:
                    self._kv[block * size + n] = chain
        return 1000 * (len(out) + len(back))

    def release(self, id: str) -> None:
        self.released.append(id)
        self._chains.pop(id, None)

    def _slot(self, item: Any, position: int) -> int:
        table: list[int] = item.request.block_table
        return table[position // self.block_size] * self.block_size + position % self.block_size

    def _chain(self, item: Any, position: int) -> int:
        """Stands for the tokens up to `position`."""
        chain = self._chains.setdefault(item.request.id, [])
        while len(chain) <= position:
            chain.append(hash((chain[-1] if chain else 0, item.request.token_ids[len(chain)])))
        return chain[position]


def fake_engine(
    clock: Clock | None = None, tokens: Callable[[str, int], int] = made_up, **asked: Any
) -> tuple[Engine, FakeExecutor]:
    config = EngineConfig.resolve(asked)
    executor = FakeExecutor(config, tokens)
    return Engine(config, executor, Tokenizer.bytes(), clock or ManualClock()), executor


__all__ = ["UNSAMPLED", "FakeExecutor", "fake_engine", "made_up"]
