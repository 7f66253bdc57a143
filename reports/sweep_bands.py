"""Bands of a sweep's curves: 95 % bootstrap intervals, over sequences for times and over repeats for hit rates.

Hits are not kept by sequence (passes of a batch share theirs), so one trace without repeats has one hit rate and no band.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from ..workbench.compare import Evidence
from ..workbench.sweep import SweepResult
from ..workbench.sweep_statistics import mean_interval
from ..workbench.sweep_table import PER_SEQUENCE
from .sweep_info import SettingInfo, at

Bands = Mapping[tuple[str, str, str], tuple[float, float]]
"""(setting, policy, capacity) → low and high; what has fewer than two samples is absent."""


def bands_of(result: SweepResult, settings: Sequence[SettingInfo], measure: str) -> Bands:
    """The intervals of all points that the curves of a measure show."""
    evidence = Evidence(result, measure)
    by_scenario = dict(zip(result.rows["scenario"], result.rows["hit_rate"], strict=True))
    found = {}
    for setting in settings:
        for policy in (*setting.bounds, *setting.policies):
            for capacity in setting.capacities:
                row = at(setting, capacity, policy)
                if row is None:
                    continue
                names = row["scenarios"]
                samples = (
                    evidence.of(names) if measure in PER_SEQUENCE
                    else np.asarray([by_scenario[name] for name in names], np.float64)
                )  # fmt: skip
                interval = mean_interval(samples)
                if interval.low is not None and interval.high is not None:
                    found[setting.name, policy, capacity] = (interval.low, interval.high)
    return found


def band_note(bands: Bands, measure: str) -> str:
    """What a figure's bands are, or why it has none."""
    what = "sequences" if measure in PER_SEQUENCE else "repeats"
    capacities = Counter((setting, policy) for setting, policy, _ in bands)
    if bands and max(capacities.values()) < 2:
        return "No bands: they need two capacities."
    if bands:
        return f"Bands: 95 % intervals by bootstrap over {what}; a line without one has fewer than two."
    why = "" if what == "sequences" else " (hits are not kept by sequence; a study with repeats has them)"
    return f"No bands: fewer than two {what} with a value of their own{why}."
