"""Running the scheduler without a model: the tokens are the recorded ones, the time is the modelled one.

`ForcedEngine` is an `Engine` like any other (same scheduler, same records), around an executor that looks up what a
request said in the recording. Where the recording does not know a request's next token, because the request had not
ended, was aborted, or goes on longer now, the token is a `filler` and the request is `assumed`.

Invariant: a request that ended by itself in the recording (end or stop token, stop string, bad logits) ends after the
same token with the same reason. Ends by length are the scheduler's: other limits may move them.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from engine.config import EngineConfig
from engine.detokenizer import Detokenizer
from engine.engine import Engine
from engine.executors.base import UNSAMPLED, Sampled
from engine.output import NOT_FINITE, Output
from engine.plan import Plan
from engine.request import FinishReason, Request
from engine.tokenizer import Tokenizer
from engine.whatif.clocks import VirtualClock
from engine.whatif.costs import FittedCosts
from engine.whatif.journal import Life, work_of

MOST_IDS = 1 << 31


def filler(life: Life, index: int, vocabulary: int) -> int:
    """In place of output token `index`: other requests have others there, or they would share blocks of the cache."""
    name = f"{life.arrived.id}@{life.arrived.arrival}:{index}"
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest()) % vocabulary


class ForcedRequest(Request):
    """A request that knows what becomes of it."""

    __slots__ = ("life",)

    def __init__(self, life: Life) -> None:
        super().__init__(**life.submitted())
        self.life = life

    def __deepcopy__(self, memo: dict[int, Any]) -> ForcedRequest:
        new = copy.copy(self)
        memo[id(self)] = new
        for name in ("token_ids", "block_table", "block_keys", "cpu_blocks"):
            setattr(new, name, list(getattr(self, name)))
        return new


class ForcedOutput(Output):
    """Ends a request where it ended, with no text."""

    def __init__(self, request: ForcedRequest) -> None:
        super().__init__(request, _NoText(), frozenset())
        self._forced = request

    def push(self, token: int) -> tuple[str, FinishReason | None]:
        request, life = self._forced, self._forced.life
        if token < 0:
            self.detail = NOT_FINITE
            return "", FinishReason.ERROR
        count, known = request.num_output, len(life.tokens)
        if count <= known:
            if count == known and life.reason is FinishReason.STOP:
                self.detail = life.detail
                return "", FinishReason.STOP
            return "", None
        expected = life.arrived.expected_output
        if expected is not None and expected <= count < life.arrived.max_tokens:
            self.detail = f"assumed to end after {count} tokens, as expected"
            return "", FinishReason.STOP
        return "", None

    def finish(self, reason: FinishReason) -> tuple[str, FinishReason]:
        return "", reason


class ForcedExecutor:
    """Recorded tokens; the clock moves by what the iteration would take."""

    def __init__(self, clock: VirtualClock, costs: FittedCosts, block_size: int, vocabulary: int) -> None:
        """vocabulary: fillers are below."""
        self._clock = clock
        self._costs = costs
        self._vocabulary = vocabulary
        self.block_size = block_size
        self.recorded: tuple[float, float] | None = None
        """End of this iteration and seconds of its forward pass, as recorded; None: modelled."""
        self.far = 0
        """Modelled iterations at sizes far from the measured ones."""
        self.copied = 0
        """Blocks copied to the swap pool and back in modelled iterations."""
        self.assumed: set[str] = set()
        """Requests that go on where the recording does not tell how."""

    def execute(self, plan: Plan) -> Sampled:
        tokens: list[int | None] = []
        parts = []
        for item in plan.items:
            upto = item.start + item.num_tokens
            parts.append((item.num_tokens, item.start))
            tokens.append(self._token(item.request, upto) if item.samples else None)
        if self.recorded is not None:
            end, forward = self.recorded
            self._clock.jump(end)
            return Sampled(tokens, 0.0, forward, 0.0)
        work = work_of(parts)
        seconds = self._costs.seconds(work)
        self._clock.advance(seconds)
        self.far += self._costs.beyond(work)
        forward = seconds * self._costs.forward_share
        return Sampled(tokens, seconds - forward, forward, 0.0)

    def copy_blocks(self, out: Sequence[tuple[int, int]], back: Sequence[tuple[int, int]]) -> int:
        if self.recorded is None:
            self._clock.advance(self._costs.swap_seconds(len(out) + len(back), self.block_size))
            self.copied += len(out) + len(back)
        return 0

    def release(self, id: str) -> None:
        pass

    def _token(self, request: Request, upto: int) -> int:
        assert isinstance(request, ForcedRequest)
        life, index = request.life, upto - request.num_prompt
        if index < len(life.tokens):
            return life.tokens[index]
        if index == len(life.tokens) and life.reason is FinishReason.ERROR and life.detail == NOT_FINITE:
            return UNSAMPLED
        self.assumed.add(request.id)
        return filler(life, index, self._vocabulary)


class ForcedEngine(Engine):
    def __init__(self, config: EngineConfig, executor: ForcedExecutor, clock: VirtualClock) -> None:
        super().__init__(config, executor, Tokenizer(None, {MOST_IDS - 1: ""}, frozenset(), None), clock)

    def make_output(self, request: Request) -> Output:
        assert isinstance(request, ForcedRequest)
        return ForcedOutput(request)


class _NoText(Detokenizer):
    def push(self, token_id: int) -> str:
        return ""

    def finish(self) -> str:
        return ""
