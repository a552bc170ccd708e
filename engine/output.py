"""The output side of one request: when it ends, and the text that becomes certain with each token.

Checks in vLLM's order: end-of-sequence and stop ids, then stop strings, then length. Pieces joined, tail included,
are the request's text: the decoding of all its tokens, up to the earliest stop string.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.detokenizer import Detokenizer
from engine.request import FinishReason, Request
from engine.stop import StopStrings

NOT_FINITE = "the model's logits were not finite numbers"


class Output:
    """Fed one token at a time by the engine thread."""

    def __init__(self, request: Request, detokenizer: Detokenizer, eos_ids: frozenset[int]) -> None:
        self.request = request
        params = request.params
        self._detokenizer = detokenizer
        self._stops = StopStrings(params.stop) if params.stop else None
        self._eos_ids = frozenset[int]() if params.ignore_eos else eos_ids
        self.end_ids = self._eos_ids.union(params.stop_token_ids) if params.stop_token_ids else self._eos_ids
        """Tokens that end it."""
        self.plain: Mapping[int, str] = {} if params.stop else detokenizer.plain
        """Text of tokens for which `push` would return just that; only those, and not all of them."""
        self.detail = ""
        """Why it ended, for people."""

    def push(self, token: int) -> tuple[str, FinishReason | None]:
        """The text now certain, and the reason when this token ends the request."""
        if token in self.end_ids:
            self.detail = f"{'end' if token in self._eos_ids else 'stop'} token {token}"
            return "", FinishReason.STOP
        if token < 0:
            self.detail = NOT_FINITE
            return "", FinishReason.ERROR
        piece = self._detokenizer.push(token)
        if self._stops is None:
            self.plain = self._detokenizer.plain
            return piece, None
        return self._match(piece)

    def finish(self, reason: FinishReason) -> tuple[str, FinishReason]:
        """The text held back, now that the request ends for `reason`; a stop string may still be in it."""
        if self._stops is None:
            return self._detokenizer.finish(), reason
        if self._stops.stopped:
            return "", reason
        detail = self.detail
        piece, stopped = self._match(self._detokenizer.finish())
        if not stopped:
            piece += self._stops.finish()  # may be cut: nothing can make a longer match of a complete one any more
            stopped = FinishReason.STOP if self._stops.stopped else None
        if stopped and reason is FinishReason.LENGTH:
            self.detail = "stop string"
            return piece, FinishReason.STOP
        self.detail = detail  # an abort or an error stays one
        return piece, reason

    def _match(self, piece: str) -> tuple[str, FinishReason | None]:
        assert self._stops is not None
        piece, stopped = self._stops.push(piece)
        if stopped:
            self.detail = "stop string"
        return piece, FinishReason.STOP if stopped else None
