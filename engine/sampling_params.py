"""How the tokens of one request are chosen and when they end.

Plain data, checked at construction; the sampler itself is `engine/sampler.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from engine.errors import RequestError

GREEDY_BELOW = 1e-5
"""Temperatures below this act as greedy: dividing logits by them would overflow (vLLM's limit too)."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Greedy unless `temperature` is given. Filters apply in vLLM's order: min_p, top_k, top_p."""

    max_tokens: int | None = None
    """Most output tokens; None means up to max_model_len."""
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    """0 (or -1) keeps all."""
    min_p: float = 0.0
    seed: int | None = None
    """None: derived from the engine's seed and the request's id, so a run repeats."""
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.max_tokens is not None and self.max_tokens < 1:
            raise RequestError(f"max_tokens must be at least 1, got {self.max_tokens}")
        if not (math.isfinite(self.temperature) and self.temperature >= 0):
            raise RequestError(f"temperature must be a finite number >= 0, got {self.temperature}")
        if not 0 < self.top_p <= 1:
            raise RequestError(f"top_p must be above 0 and at most 1, got {self.top_p}")
        if self.top_k < -1:
            raise RequestError(f"top_k must be 0 (off), -1 (off) or positive, got {self.top_k}")
        if not 0 <= self.min_p <= 1:
            raise RequestError(f"min_p must be between 0 and 1, got {self.min_p}")
        if self.seed is not None and not -(2**63) <= self.seed < 2**64:
            raise RequestError(f"seed must fit in 64 bits, got {self.seed}")
        if any(not text for text in self.stop):
            raise RequestError("stop strings must not be empty")

    @property
    def greedy(self) -> bool:
        return self.temperature < GREEDY_BELOW

    def describe(self) -> str:
        """In a few words, for people."""
        if self.greedy:
            words = ["greedy"]
        else:
            words = [f"T {self.temperature:g}"]
            words += [f"top_p {self.top_p:g}"] if self.top_p < 1 else []
            words += [f"top_k {self.top_k}"] if self.top_k > 0 else []
            words += [f"min_p {self.min_p:g}"] if self.min_p > 0 else []
            words += [f"seed {self.seed}"] if self.seed is not None else []
        words += ["EOS ignored"] if self.ignore_eos else []
        words += [f"{len(self.stop)} stop strings"] if self.stop else []
        return " ".join(words)
