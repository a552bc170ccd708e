"""Non-negative least squares: `argmin |A x - b|` with every x >= 0.

Lawson and Hanson's active-set method (1974, chapter 23). It ends after finitely many steps, at the one minimum where
the columns are independent, and at one of them otherwise.
Omission: for tens of columns, not thousands; rows are folded into a small triangle first, so they may be many.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def nnls(matrix: Array, target: Array) -> Array:
    """The solution, one number a column, none of them negative."""
    columns = matrix.shape[1]
    solution = np.zeros(columns)
    if columns == 0 or len(target) == 0:
        return solution
    # |A x - b| only depends on the triangle of a QR decomposition of [A b].
    triangle: Array = np.asarray(np.linalg.qr(np.column_stack([matrix, target]), mode="r"))
    scale = np.linalg.norm(triangle[:, :-1], axis=0)
    scale[scale == 0] = 1.0
    a, b = triangle[:, :-1] / scale, triangle[:, -1]
    tolerance = 1e-12 * max(float(np.abs(a.T @ b).max()), 1e-300)
    free = np.zeros(columns, dtype=bool)
    for _ in range(10 * columns):
        gradient = a.T @ (b - a @ solution)
        gradient[free] = -np.inf
        best = int(np.argmax(gradient))
        if not gradient[best] > tolerance:
            break
        free[best] = True
        while True:
            trial = np.zeros(columns)
            if free.any():
                trial[free] = np.linalg.lstsq(a[:, free], b, rcond=None)[0]
            negative = free & (trial <= 0)
            if not negative.any():
                break
            # Go towards the trial as far as nothing turns negative; what arrives at zero is fixed there.
            way = solution[negative] - trial[negative]
            room = float(np.where(way > 0, solution[negative] / np.maximum(way, 1e-300), 0.0).min())
            solution = solution + room * (trial - solution)
            free &= solution > 1e-15
            solution[~free] = 0.0
        solution = trial
    result: Array = solution / scale
    return result
