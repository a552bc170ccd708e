"""From logits to tokens.

Greedy rows take the largest logit. The others draw by inverse transform: filters, then one uniform number per
token, a hash of the request's seed and the token's position. So a request's draws depend on nothing but itself:
neighbours, batching, preemption and restarts never change a seeded answer.

Filters apply in vLLM's order: temperature, min_p, top_k, top_p.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from engine.executors.base import UNSAMPLED
from engine.sampling_params import SamplingParams

SHORTLIST = 1024
"""How many of the likeliest tokens are put in order before a whole vocabulary is."""
_MASK = (1 << 64) - 1


class Draw(NamedTuple):
    """What one row needs to be sampled."""

    params: SamplingParams
    seed: int
    position: int
    """Position in its sequence of the token to be drawn."""


def seed_of(id: str, params: SamplingParams, engine_seed: int) -> int:
    """The request's own seed, or one that follows from the engine's seed and the request's id."""
    if params.seed is not None:
        return params.seed & _MASK
    digest = hashlib.blake2b(f"{engine_seed}:{id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from (seed, position): two rounds of splitmix64 (Steele, Lea, Flood 2014)."""
    return (_mix(_mix(seed) ^ position) >> 11) * 2.0**-53


def _mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def sample(logits: torch.Tensor, draws: Sequence[Draw]) -> list[int]:
    """One token a row of `logits` [rows, vocabulary] float32; UNSAMPLED for a row that is not all finite."""
    tokens: list[int] = logits.argmax(-1).tolist()
    # One sum a row finds NaN and infinity alike; finite float32 logits cannot overflow it in float64.
    finite = torch.isfinite(logits.sum(-1, dtype=torch.float64)).tolist()
    hot = [row for row, draw in enumerate(draws) if not draw.params.greedy and finite[row]]
    if hot:
        probabilities = filtered_probabilities(logits[hot], [draws[row].params for row in hot])
        cumulative = probabilities.cumsum(-1)
        points = np.array([uniform(draws[row].seed, draws[row].position) for row in hot])
        total = cumulative[:, -1:]
        targets = torch.from_numpy(points).to(logits.device)[:, None] * total
        targets = torch.minimum(targets, torch.nextafter(total, torch.zeros_like(total)))
        # The first token whose cumulative probability exceeds the target: never one of probability zero.
        chosen = torch.searchsorted(cumulative, targets, right=True).squeeze(-1)
        for row, token in zip(hot, chosen.tolist(), strict=True):
            tokens[row] = token
    return [token if ok else UNSAMPLED for token, ok in zip(tokens, finite, strict=True)]


def filtered_probabilities(logits: torch.Tensor, params: Sequence[SamplingParams]) -> torch.Tensor:
    """[rows, vocabulary] float64: probabilities after temperature and filters, not normalised again."""

    def column(values: list[float]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float64, device=logits.device)[:, None]

    # The maximum is taken off before dividing, so a tiny temperature cannot overflow.
    x = logits.double()
    x = (x - x.amax(-1, keepdim=True)) / column([p.temperature for p in params])
    p = x.softmax(-1)
    if any(param.min_p > 0 for param in params):
        p = p.masked_fill(p < p.amax(-1, keepdim=True) * column([param.min_p for param in params]), 0.0)
    keeps = [param.top_k if 0 < param.top_k < p.shape[-1] else p.shape[-1] for param in params]
    if any(keep < p.shape[-1] for keep in keeps) or any(param.top_p < 1 for param in params):
        p = _cut_tail(p, column([float(keep) for keep in keeps]), column([param.top_p for param in params]))
    return p


def _cut_tail(p: torch.Tensor, keep: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Zero what top_k (`keep` [rows, 1]) and then top_p cut off. At least the likeliest token stays."""
    vocabulary = p.shape[-1]
    # Ordering a whole vocabulary costs far more than the likeliest thousand, which nearly always hold the mass.
    width = min(vocabulary, SHORTLIST)
    ordered, order = p.topk(width, dim=-1)
    total = p.cumsum(-1)[:, -1:]  # a plain sum's last bit depends on how many rows there are
    enough = (keep <= width) | (
        (keep >= vocabulary) & ((top_p >= 1) | (ordered.sum(-1, keepdim=True) >= top_p * total))
    )
    kept = _cut_ordered(p, ordered, order, keep, top_p, total)
    short = ~enough.squeeze(-1)
    if width < vocabulary and bool(short.any()):
        # These rows and no others, so that what a row keeps never depends on its neighbours.
        rows = p[short]
        kept[short] = _cut_ordered(rows, *rows.topk(vocabulary, dim=-1), keep[short], top_p[short], total[short])
    return kept


def _cut_ordered(
    p: torch.Tensor,
    ordered: torch.Tensor,
    order: torch.Tensor,
    keep: torch.Tensor,
    top_p: torch.Tensor,
    total: torch.Tensor,
) -> torch.Tensor:
    """`ordered` and `order`: the likeliest tokens of each row, enough of them for its filters; `total`: its mass."""
    rank = torch.arange(ordered.shape[-1], device=p.device)[None, :]
    unlimited = keep >= p.shape[-1]
    mass = torch.where(unlimited, total, ordered.masked_fill(rank >= keep, 0.0).cumsum(-1)[:, -1:])
    before = ordered.cumsum(-1) - ordered
    # A token stays while the mass before it is below top_p; rank 0 always does, and top_p 1 cuts nothing.
    cut = (rank >= keep) | ((before >= top_p * mass) & (rank > 0) & (top_p < 1))
    kept = torch.zeros_like(p).scatter_(-1, order, ordered.masked_fill(cut, 0.0))
    # A row without either filter keeps all, the part beyond the shortlist too.
    return torch.where(unlimited & (top_p >= 1), p, kept)
