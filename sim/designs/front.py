"""Which designs no other one beats, and which of them to look at first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def front(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """[R] of values [R, M], all to be small: rows that no other row beats in one measure and equals in the rest.

    Rows with an unknown value (NaN) are on no front. Equal rows are on it together.
    """
    known = np.flatnonzero(np.isfinite(values).all(axis=1))
    result = np.zeros(len(values), np.bool_)
    if not len(known):
        return result
    left = known[np.argsort(values[known].sum(axis=1), kind="stable")]  # likely winners first: they remove most
    rows = values[left]
    place = 0
    while place < len(rows):
        beaten = (rows >= rows[place]).all(axis=1) & (rows > rows[place]).any(axis=1)
        left, rows = left[~beaten], rows[~beaten]
        place += 1 - int(beaten[:place].sum())
    result[left] = True
    return result


def knee(values: NDArray[np.float64]) -> int:
    """Row of a front [F, M] nearest to its ideal point, each measure scaled to the front's own span (all equal: row 0)."""
    low, high = values.min(axis=0), values.max(axis=0)
    scaled = (values - low) / np.where(high > low, high - low, 1.0)
    return int(np.argmin((scaled**2).sum(axis=1)))
