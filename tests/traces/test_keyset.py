"""A set of keys against Python's."""

from __future__ import annotations

import numpy as np

from traces.keyset import KeySet


def test_keys_are_new_once() -> None:
    draw = np.random.default_rng(3)
    known: set[int] = set()
    found = KeySet()
    for size in (1, 5, 0, 20_000, 3, 20_000, 40_000):
        keys = draw.integers(0, 30_000, size).astype(np.uint64) << np.uint64(30)  # 0 among them
        fresh = found.add(keys).tolist()
        assert len(fresh) == len(set(fresh)) and set(fresh) == set(keys.tolist()) - known
        known |= set(keys.tolist())
        assert len(found) == len(known)
    assert set(found.keys().tolist()) == known


def test_keys_that_want_one_place() -> None:
    """All of them differ only in bits that do not choose the place."""
    keys = np.arange(1, 2000, dtype=np.uint64)
    found = KeySet()
    assert len(found.add(keys)) == 1999 and len(found.add(keys)) == 0 and len(found) == 1999
