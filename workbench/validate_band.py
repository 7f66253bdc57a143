"""Bands by split conformal prediction on whole calibration runs, and whether what was measured keeps to them.

Angelopoulos and Bates (arXiv 2107.07511): with n scores of runs that were not fitted on, the ⌈(n + 1) · 0.9⌉-th smallest
bounds a further run's score with probability 0.9 at least. The score is |ln(measured ÷ predicted)|.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

COVERAGE = 0.9
LEAST_SCORES = 9
"""With fewer no finite band covers 90 %: ⌈(n + 1) · 0.9⌉ exceeds n."""


def scores_of(measured: Iterable[float], predicted: Iterable[float]) -> list[float]:
    """|ln(measured ÷ predicted)| of each pair of positive values."""
    return [abs(math.log(m / p)) for m, p in zip(measured, predicted, strict=True) if m > 0 and p > 0]


def half_width(scores: Sequence[float] | NDArray[np.floating], coverage: float = COVERAGE) -> float | None:
    """The band's half-width in ln; None where there are too few scores for a finite one."""
    rank = math.ceil((len(scores) + 1) * coverage)
    if rank > len(scores):
        return None
    return float(np.sort(np.asarray(scores))[rank - 1])


def binomial_p(inside: int, trials: int, chance: float = COVERAGE) -> float:
    """Two-sided exact p: the probability of all outcomes that are no likelier than the one seen."""
    from scipy.stats import binomtest

    return float(binomtest(inside, trials, chance).pvalue)


def spread_of(values: Sequence[float]) -> float | None:
    """(p75 − p25) ÷ median; None for a single value."""
    if len(values) < 2:
        return None
    low, middle, high = np.percentile(values, [25, 50, 75])
    return float((high - low) / middle)
