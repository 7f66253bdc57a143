"""The smooth surface over shapes: a Gaussian process on log(time / physical form), one value per grid point of a shape.

All shapes of a group (one kernel in one number format) are measured on the same grid, so one kernel matrix over shapes
serves every grid point, and leaving a shape (or all shapes of a model) out has a closed form: Rasmussen and Williams,
Gaussian Processes for Machine Learning (2006), section 5.4.2. Each axis has its own length scale (section 5.1): what a
kernel hardly notices (the count of KV heads) gets a long one, what changes the kernel (the head size) a short one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
LENGTHS = (1.0, 2.0, 4.0, 8.0)
"""Length scales tried for all axes at once, in doublings of a size."""
FACTORS = (0.25, 0.5, 2.0, 4.0)
"""By what an axis's own length is then changed, as long as that lessens the left-out error."""
NOISES = (0.002, 0.01, 0.03, 0.1, 0.3)
"""Noise to signal variance tried."""
_OWN_LENGTHS = 20  # shapes below which all axes keep one length: too few to choose more by
_CHOOSING = 250  # shapes that lengths are chosen on, evenly drawn from all, for speed


@dataclass(frozen=True, slots=True)
class Surface:
    """`coords` [S, C] of the shapes it knows, `mean` [G] over them, `weights` [S, G], `lengths` [C] of the axes."""

    coords: Floats
    mean: Floats
    weights: Floats
    lengths: Floats
    noise: float
    left_out: Floats
    """[S, G]: each shape's values as the others (or the other models) predict them."""

    def at(self, coords: Floats) -> Floats:
        """[Q, C] → [Q, G]."""
        return np.asarray(self.mean + matern(coords, self.coords, self.lengths) @ self.weights)


def matern(first: Floats, second: Floats, lengths: ArrayLike) -> Floats:
    """Matérn covariance of smoothness 3/2 between points [Q, C] and [S, C]; 1 at distance 0. `lengths`: one, or [C]."""
    scale = np.asarray(lengths, np.float64)
    x, y = first / scale, second / scale
    square = np.maximum((x**2).sum(-1)[:, None] + (y**2).sum(-1)[None, :] - 2.0 * x @ y.T, 0.0)
    scaled = np.sqrt(3.0 * square)
    return np.asarray((1.0 + scaled) * np.exp(-scaled))


def fit_surface(coords: Floats, values: Floats, folds: NDArray[np.int64] | None = None) -> Surface:
    """Fit on values [S, G] (NaN: not measured). Lengths and noise are those with the least left-out error.

    `folds` [S]: shapes of one fold are left out together; None: one by one.
    """
    shapes, axes = coords.shape
    mean = _column_median(values)
    rest = values - mean
    filled = _filled(coords, rest)
    if shapes < 3:
        alone = np.broadcast_to(mean, values.shape).copy()
        return Surface(coords, mean, np.zeros_like(filled), np.ones(axes), NOISES[0], alone)
    part = np.unique(np.linspace(0, shapes - 1, min(shapes, _CHOOSING)).round().astype(np.int64))
    known = np.isfinite(rest[part])

    def error(lengths: Floats, noise: float) -> float:
        guess, _ = _solved(coords[part], filled[part], None if folds is None else folds[part], lengths, noise)
        wrong = np.abs(guess - rest[part])[known]
        return float(np.median(wrong) + 0.2 * np.quantile(wrong, 0.9))

    lengths, noise = _chosen(error, axes, own=shapes >= _OWN_LENGTHS)
    guess, weights = _solved(coords, filled, folds, lengths, noise)
    return Surface(coords, mean, weights, lengths, noise, mean + guess)


def _chosen(error: Callable[[Floats, float], float], axes: int, *, own: bool) -> tuple[Floats, float]:
    """One length for all axes first; then axis by axis, twice over, with the noise after each round."""
    tried = [(error(np.full(axes, one), noise), one, noise) for one in LENGTHS for noise in NOISES]
    least, one, noise = min(tried)
    lengths = np.full(axes, one)
    for _ in range(2 if own else 0):
        for axis in range(axes):
            start = lengths.copy()
            for factor in FACTORS:
                changed = start.copy()
                changed[axis] *= factor
                found = error(changed, noise)
                if found < least:
                    least, lengths = found, changed
        for other in NOISES:
            found = error(lengths, other)
            if found < least:
                least, noise = found, other
    return lengths, noise


def _solved(
    coords: Floats, filled: Floats, folds: NDArray[np.int64] | None, lengths: Floats, noise: float
) -> tuple[Floats, Floats]:
    """(values as the others predict them [S, G], weights [S, G])."""
    inverse = np.asarray(np.linalg.inv(matern(coords, coords, lengths) + noise * np.eye(len(coords))))
    weights = inverse @ filled
    return _left_out(inverse, weights, filled, folds), weights


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
