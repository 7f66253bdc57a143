"""Bands: scores of left-out shapes, divided by the usual error where they lie, and the quantile that covers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LEVEL = 0.9


def conformal(scores: Floats) -> float:
    """The ⌈(n + 1)·level⌉-th smallest score: at least `LEVEL` of new exchangeable scores lie below."""
    n = len(scores)
    if n == 0:
        return 3.0  # nothing to judge by: three times the usual error
    rank = min(int(np.ceil((n + 1) * LEVEL)), n)
    return float(np.partition(scores, rank - 1)[rank - 1])


def usual_error(error: Floats, b: int) -> Floats:
    """Mean error of each point of the first axis over shapes and the second axis, smoothed over neighbours; [A·B]."""
    columns = error.reshape(len(error), -1, b)
    known = np.isfinite(columns)
    total, count = np.where(known, columns, 0.0).sum(axis=(0, 1)), known.sum(axis=(0, 1))
    smooth = _smoothed(total) / np.maximum(_smoothed(count.astype(np.float64)), 1e-9)
    overall = float(total.sum() / max(int(count.sum()), 1))
    smooth = np.maximum(np.where(smooth > 0, smooth, overall), max(0.25 * overall, 1e-4))
    return np.tile(smooth, error.shape[1] // b)


def _smoothed(values: Floats) -> Floats:
    """Each value twice, and its neighbours once."""
    padded = np.pad(values, 1)
    return np.asarray(padded[:-2] + 2.0 * padded[1:-1] + padded[2:])
