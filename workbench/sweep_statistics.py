"""How sure a sweep is: intervals by bootstrap over sequences, and a paired test before anything is called better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

_RESAMPLES = 2000
_ALPHA = 0.05
FEWEST_PAIRS = 6
"""Wilcoxon's signed-rank test cannot fall below 5 % with fewer pairs (2 ÷ 2⁵ = 6.25 %)."""

Verdict = Literal["better", "worse", "tie", "untested"]


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean over sequences, or the ratio of two sums over them, with its 95 % interval: None with fewer than two."""

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
    return Interval(mean, *_bootstrapped(np.mean, known, seed=seed))


def ratio_interval(parts: NDArray[np.float64], wholes: NDArray[np.float64], seed: int = 0) -> Interval:
    """Sum of parts ÷ sum of wholes with its interval; sequences without a whole are left out."""
    parts, wholes = parts[wholes > 0], wholes[wholes > 0]
    if len(parts) == 0:
        return Interval(None, None, None)
    ratio = float(parts.sum() / wholes.sum())
    if len(parts) < 2:
        return Interval(ratio, None, None)
    if np.ptp(parts / wholes) == 0:
        return Interval(ratio, ratio, ratio)

    def of_sums(some: NDArray[np.float64], all_: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        found: NDArray[np.float64] = some.sum(axis=axis) / all_.sum(axis=axis)
        return found

    return Interval(ratio, *_bootstrapped(of_sums, parts, wholes, seed=seed))


def _bootstrapped(statistic: Callable[..., Any], *samples: NDArray[np.float64], seed: int) -> tuple[float, float]:
    """Low and high of the 95 % percentile interval; several samples are drawn together."""
    from scipy.stats import bootstrap

    found = bootstrap(
        samples, statistic, n_resamples=_RESAMPLES, method="percentile", rng=np.random.default_rng(seed), vectorized=True,
        paired=len(samples) > 1,
    ).confidence_interval  # fmt: skip
    return float(found.low), float(found.high)


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
