"""How sure a sweep is: intervals by bootstrap over sequences, and a paired test before anything is called better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 2000
_ALPHA = 0.05
FEWEST_PAIRS = 6
"""Wilcoxon's signed-rank test cannot fall below 5 % with fewer pairs (2 ÷ 2⁵ = 6.25 %)."""

Verdict = Literal["better", "worse", "tie", "untested"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over sequences with its 95 % interval; low and high are None with fewer than two sequences."""

    mean: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A against B on the same sequences, smaller being better."""

    verdict: Verdict
    """Of A. "tie": tested and not told apart, or equal throughout. "untested": too few sequences to test."""
    ratio: float | None
    """Mean of A ÷ mean of B."""
    p_value: float | None
    pairs: int


def mean_interval(values: NDArray[np.float64], seed: int = 0) -> Interval:
    """Mean and 95 % percentile interval by bootstrap over sequences; undefined (NaN) sequences are left out."""
    known = values[~np.isnan(values)]
    if len(known) == 0:
        return Interval(None, None, None)
    mean = float(known.mean())
    if len(known) < 2:
        return Interval(mean, None, None)
    if np.ptp(known) == 0:
        return Interval(mean, mean, mean)
    from scipy.stats import bootstrap

    found = bootstrap(
        (known,),
        np.mean,
        n_resamples=_RESAMPLES,
        method="percentile",
        rng=np.random.default_rng(seed),
        vectorized=True,
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def paired(a: NDArray[np.float64], b: NDArray[np.float64]) -> Comparison:
    """Wilcoxon's signed-rank test of A against B, sequence by sequence, two-sided at 5 %."""
    known = ~(np.isnan(a) | np.isnan(b))
    a, b = a[known], b[known]
    if len(a) == 0:
        return Comparison("untested", None, None, 0)
    ratio = float(a.mean() / b.mean()) if b.mean() > 0 else None
    if np.array_equal(a, b):
        return Comparison("tie", ratio, None, len(a))
    if len(a) < FEWEST_PAIRS:
        return Comparison("untested", ratio, None, len(a))
    from scipy.stats import wilcoxon

    p_value = float(
        wilcoxon(a, b, zero_method="zsplit", method="auto" if (a != b).all() else "approx").pvalue
    )
    if p_value >= _ALPHA:
        return Comparison("tie", ratio, p_value, len(a))
    # The test is about ranks: where most sequences win and the mean still loses, neither is simply better.
    wins = np.sign((b - a).mean()) if np.sign((b - a).mean()) == np.sign(np.median(b - a)) else 0
    verdict: Verdict = "better" if wins > 0 else "worse" if wins < 0 else "tie"
    return Comparison(verdict, ratio, p_value, len(a))
