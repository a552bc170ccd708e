"""What `SamplingParams` accepts: refused with the name, never ignored."""

from __future__ import annotations

import math
from typing import Any

import pytest

from engine.errors import RequestError
from engine.sampling_params import SamplingParams


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("max_tokens", [0, -1]),
        ("temperature", [-0.1, math.nan, math.inf]),
        ("top_p", [0.0, -0.5, 1.01, math.nan]),
        ("top_k", [-2]),
        ("min_p", [-0.1, 1.1, math.nan]),
        ("seed", [2**64, -(2**63) - 1]),
        ("stop", [("",), ("a", "")]),
    ],
)
def test_refused(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(RequestError, match=name):
            SamplingParams(**{name: value})


def test_edges_are_accepted() -> None:
    SamplingParams(max_tokens=1, temperature=0.0, top_p=1e-9, top_k=-1, min_p=1.0, seed=2**64 - 1)
    SamplingParams(seed=-(2**63), top_p=1.0, stop=("\n", "🙂"), stop_token_ids=(0,))


def test_describe() -> None:
    assert SamplingParams().describe() == "greedy"
    params = SamplingParams(temperature=0.8, top_p=0.9, top_k=5, min_p=0.1, seed=0, ignore_eos=True, stop=("a", "b"))
    assert params.describe() == "T 0.8 top_p 0.9 top_k 5 min_p 0.1 seed 0 EOS ignored 2 stop strings"
