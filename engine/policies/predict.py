"""Predicted output lengths: the oracle's, made wrong by as much as knob `prediction_noise` says.

The error is a log-normal factor that hangs on the request's id alone: a request is misjudged the same way all its
life and in every run, and more noise misjudges it further in the same direction.
"""

from __future__ import annotations

import math
from functools import lru_cache
from hashlib import blake2b
from statistics import NormalDist

from engine.config import EngineConfig
from engine.request import Request


def predicted_output(request: Request, config: EngineConfig) -> float:
    """Output tokens a request is believed to get in all, from 1 to the longest possible."""
    longest = config.model_len if config.max_model_len else 1 << 24
    expected = request.expected_output
    if expected is None:
        expected = request.params.max_tokens or longest
    factor = math.exp(config.prediction_noise * _deviate(request.id)) if config.prediction_noise else 1.0
    return min(max(1.0, expected * factor), float(longest))


@lru_cache(maxsize=1 << 14)
def _deviate(id: str) -> float:
    """A number of the standard normal distribution."""
    digest = blake2b(id.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return NormalDist().inv_cdf((int.from_bytes(digest, "big") + 0.5) / 2.0**64 * (1 - 2.0**-52))
