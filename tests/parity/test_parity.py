"""Our scheduler against traces of vLLM's, block numbers included."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.parity.drive import run_case

HERE = Path(__file__).parent
CASES = sorted(path.stem for path in (HERE / "cases").glob("*.json"))


@pytest.mark.parametrize("name", CASES)
def test_trace(name: str) -> None:
    case = json.loads((HERE / "cases" / f"{name}.json").read_text())
    expected = [json.loads(line) for line in (HERE / "expected" / f"{name}.jsonl").read_text().splitlines()]
    ghost = next((i for i, line in enumerate(expected) if "ghost_cached" in line), None)
    got = run_case(case)
    for want, have in zip(expected[:ghost], got, strict=ghost is None):
        want.pop("ghost_hit", None)
        assert have == want


def test_every_category_is_here() -> None:
    assert len(CASES) >= 30
