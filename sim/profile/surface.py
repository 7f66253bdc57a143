"""The smooth surface over shapes: a Gaussian process on log(time / physical form), one value per grid point of a shape.

All shapes of a group (one kernel in one number format) are measured on the same grid, so one kernel matrix over shapes
serves every grid point, and leaving a shape (or all shapes of a model) out has a closed form: Rasmussen and Williams,
Gaussian Processes for Machine Learning (2006), section 5.4.2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LENGTHS = (1.0, 2.0, 4.0, 8.0)
"""Length scales tried, in doublings of a size."""
NOISES = (0.01, 0.05, 0.2)
"""Noise to signal variance tried."""


@dataclass(frozen=True, slots=True)
class Surface:
    """`coords` [S, C] of the shapes it knows, `mean` [G] over them, `weights` [S, G]."""

    coords: Floats
    mean: Floats
    weights: Floats
    length: float
    left_out: Floats
    """[S, G]: each shape's values as the others (or the other models) predict them."""

    def at(self, coords: Floats) -> Floats:
        """[Q, C] → [Q, G]."""
        return np.asarray(self.mean + matern(coords, self.coords, self.length) @ self.weights)


def matern(first: Floats, second: Floats, length: float) -> Floats:
    """Matérn covariance of smoothness 3/2 between points [Q, C] and [S, C]; 1 at distance 0."""
    square = np.maximum(
        (first**2).sum(-1)[:, None] + (second**2).sum(-1)[None, :] - 2.0 * first @ second.T, 0.0
    )  # fmt: skip
    scaled = np.sqrt(3.0 * square) / length
    return np.asarray((1.0 + scaled) * np.exp(-scaled))


def fit_surface(coords: Floats, values: Floats, folds: NDArray[np.int64] | None = None) -> Surface:
    """Fit on values [S, G] (NaN: not measured). Length and noise are those with the least left-out error.

    `folds` [S]: shapes of one fold are left out together; None: one by one.
    """
    shapes = len(coords)
    mean = _column_median(values)
    rest = values - mean
    known = np.isfinite(rest)
    filled = _filled(coords, rest)
    if shapes < 3:
        return Surface(coords, mean, np.zeros_like(filled), 1.0, np.broadcast_to(mean, values.shape).copy())
    best: tuple[float, float, Floats, Floats] | None = None
    for length in LENGTHS:
        covariance = matern(coords, coords, length)
        for noise in NOISES:
            inverse = np.linalg.inv(covariance + noise * np.eye(shapes))
            weights = inverse @ filled
            guess = _left_out(np.asarray(inverse, np.float64), weights, filled, folds)
            error = np.abs(guess - rest)[known]
            score = float(np.median(error) + 0.2 * np.quantile(error, 0.9))
            if best is None or score < best[0]:
                best = (score, length, weights, guess)
    assert best is not None
    return Surface(coords, mean, best[2], best[1], mean + best[3])


def _left_out(inverse: Floats, weights: Floats, filled: Floats, folds: NDArray[np.int64] | None) -> Floats:
    if folds is None:
        return np.asarray(filled - weights / np.diag(inverse)[:, None])
    guess = np.empty_like(filled)
    for fold in np.unique(folds):
        inside = np.flatnonzero(folds == fold)
        guess[inside] = filled[inside] - np.linalg.solve(inverse[np.ix_(inside, inside)], weights[inside])
    return guess


def _column_median(values: Floats) -> Floats:
    """Median of each grid point over shapes; where none was measured, of all values."""
    known = np.isfinite(values)
    overall = float(np.median(values[known])) if known.any() else 0.0
    result = np.full(values.shape[1], overall)
    some = known.any(axis=0)
    result[some] = np.nanmedian(values[:, some], axis=0)
    return result


def _filled(coords: Floats, rest: Floats, neighbours: int = 12) -> Floats:
    """Missing grid points take the value of the nearest shape that has one, else the median: 0."""
    result = rest.copy()
    if not np.isnan(result).any():
        return result
    distance = ((coords[:, None, :] - coords[None, :, :]) ** 2).sum(-1)
    order = np.argsort(distance, axis=1)[:, 1 : neighbours + 1]
    for column in range(order.shape[1]):
        result = np.where(np.isnan(result), rest[order[:, column]], result)
    return np.where(np.isnan(result), 0.0, result)
