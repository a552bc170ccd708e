"""Non-negative least squares against known answers and against trying every set of free columns."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from engine.whatif.nnls import Array, nnls


def brute_force(matrix: Array, target: Array) -> float:
    """The least residual over all sets of columns whose own solution is not negative."""
    best = float(np.linalg.norm(target))
    columns = range(matrix.shape[1])
    for size in range(1, matrix.shape[1] + 1):
        for chosen in combinations(columns, size):
            part = matrix[:, chosen]
            x = np.linalg.lstsq(part, target, rcond=None)[0]
            if (x >= -1e-12).all():
                best = min(best, float(np.linalg.norm(part @ x - target)))
    return best


def test_known_answers() -> None:
    eye = np.eye(3)
    assert nnls(eye, np.array([1.0, 2.0, 3.0])) == pytest.approx([1, 2, 3])
    assert nnls(eye, np.array([1.0, -2.0, 3.0])) == pytest.approx([1, 0, 3])
    assert nnls(eye, np.array([-1.0, -2.0, -3.0])) == pytest.approx([0, 0, 0])
    # Unconstrained (3, -1): without the second column the first is the mean.
    matrix = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    assert nnls(matrix, np.array([3.0, 2.0, 1.0])) == pytest.approx([2, 0])
    assert nnls(np.zeros((4, 2)), np.ones(4)) == pytest.approx([0, 0])
    assert nnls(np.zeros((0, 2)), np.zeros(0)) == pytest.approx([0, 0])
    assert nnls(np.array([[2.0, 1.0]]), np.array([4.0])) @ [2, 1] == pytest.approx(4)


@pytest.mark.parametrize("seed", range(60))
def test_against_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 30)), int(rng.integers(1, 7))
    matrix = rng.normal(size=(rows, columns)) * 10.0 ** rng.integers(-3, 4, size=columns)
    if seed % 4 == 0 and columns > 1:
        matrix[:, 1] = 2 * matrix[:, 0]  # dependent columns
    if seed % 3 == 0:
        matrix = np.abs(matrix)
    target = rng.normal(size=rows)
    x = nnls(matrix, target)
    assert (x >= 0).all()
    assert np.linalg.norm(matrix @ x - target) == pytest.approx(brute_force(matrix, target), rel=1e-7, abs=1e-9)
