"""What deciding costs: nanoseconds an event for each policy, prefetcher and miss policy of ours, measured and kept as data.

The numbers stand in `catalog/decisions.toml`; `benchmarks/decision_cost.py` measures and writes them. A run takes
them from the file and never measures by itself, so that two runs give the same bytes. Policies that need the
future are bounds, no methods: they decide in no time, and the report says so.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .cache.misses import MissPolicy
from .cache.registry import Policy
from .prefetch.registry import Prefetcher

DECISIONS_FILE = Path(__file__).parent / "catalog" / "decisions.toml"


@dataclass(frozen=True, slots=True)
class DecisionCost:
    """Time that one event's decisions take on the host."""

    ns: int
    kind: str
    """measured, or stated (0 for bounds and where a user says so)."""
    source: str


@cache
def _measured() -> dict[str, Any]:
    return tomllib.loads(DECISIONS_FILE.read_text(encoding="utf-8"))


def decision_cost(
    policy: Policy, prefetch: Prefetcher, slots: int, miss: MissPolicy | None = None
) -> DecisionCost:
    """The decision cost of one event for a pool of `slots` experts.

    Measured at two pool sizes; between and beyond them it is the straight line through both, never below the
    smaller (some policies look at every slot to find a victim, most do not).
    """
    if policy.is_bound:
        return DecisionCost(0, "stated", "a bound decides in no time")
    table = _measured()
    low, high = table["small_slots"], table["large_slots"]
    at_low, at_high = table["policy_ns"][policy.name]
    slope = max(0.0, (at_high - at_low) / (high - low))
    nanoseconds = at_low + slope * max(0, slots - low) + table["prefetch_ns"].get(prefetch.name, 0.0)
    source = table["source"]
    if miss is not None and miss.name != "load":
        if miss.name in table["miss_ns"]:
            nanoseconds += table["miss_ns"][miss.name]
        else:
            source += f"; what miss policy {miss.name} adds is unknown and left out"
    return DecisionCost(round(nanoseconds), "measured", source)
