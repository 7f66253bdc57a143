"""Bands of a sweep's curves: 95 % bootstrap intervals over sequences.

Where the sequences of a batch share passes no hit is one sequence's own, and hit rates vary over repeats only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..workbench.compare import Evidence
from ..workbench.sweep import SweepResult
from ..workbench.sweep_statistics import Interval, mean_interval
from .sweep_info import SettingInfo, at


class Bands(NamedTuple):
    of: Mapping[tuple[str, str, str], tuple[float, float]]
    """(setting, policy, capacity) → low and high; what has fewer than two samples is absent."""
    samples: frozenset[str]
    """Over what: "sequences", "repeats"."""


def bands_of(result: SweepResult, settings: Sequence[SettingInfo], measure: str) -> Bands:
    """The intervals of all points that the curves of a measure show."""
    evidence, samples = Evidence(result, measure), set()
    rates = dict(zip(result.rows["scenario"], result.rows["hit_rate"], strict=True))

    def interval(scenarios: Sequence[str]) -> tuple[str, Interval]:
        found = evidence.interval(scenarios)
        if measure == "hit_rate" and found.mean is None:
            return "repeats", mean_interval(np.asarray([rates[name] for name in scenarios], np.float64))
        return "sequences", found

    found = {}
    for setting in settings:
        for policy in (*setting.bounds, *setting.policies):
            for capacity in setting.capacities:
                row = at(setting, capacity, policy)
                if row is None:
                    continue
                over, of_point = interval(row["scenarios"])
                low, high = of_point.low, of_point.high
                samples.add(over)
                if low is not None and high is not None:
                    found[setting.name, policy, capacity] = (low, high)
    return Bands(found, frozenset(samples))


def band_note(bands: Bands) -> str:
    """What a figure's bands are, or why it has none."""
    what = " or, where those share passes, ".join(sorted(bands.samples, reverse=True))
    capacities = Counter((setting, policy) for setting, policy, _ in bands.of)
    if bands.of and max(capacities.values()) < 2:
        return "No bands: they need two capacities."
    if bands.of:
        return f"Bands: 95 % intervals by bootstrap over {what}; a line without one has fewer than two."
    why = " (sequences share passes, so no hit is one sequence's own)" if "repeats" in bands.samples else ""
    return f"No bands: fewer than two {what} with a value of their own{why}."
