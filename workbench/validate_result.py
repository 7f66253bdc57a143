"""What a validation found: predicted beside measured, per metric and per layer, and the verdict."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .units import format_percent, format_seconds
from .validate_band import binomial_p

METRICS = ("tpot_s", "ttft_s", "makespan_s")
_BARS = {"tpot_median_ape": 0.05, "tpot_p90_ape": 0.12}
_STEADY = 0.05  # up to this spread, twice the spread stands in for a bar that it exceeds
_ORDER_BAR = 0.95
_LAYER_COVERAGE = (0.85, 0.95)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric of one case. `low` and `high` are the 90 % band, None where too few calibration runs give none."""

    name: str
    predicted: float
    low: float | None
    high: float | None
    measured: float
    spread: float | None

    @property
    def ape(self) -> float:
        """|predicted − measured| ÷ measured."""
        return abs(self.predicted - self.measured) / self.measured

    @property
    def inside(self) -> bool | None:
        if self.low is None or self.high is None:
            return None
        return self.low <= self.measured <= self.high

    def to_dict(self) -> dict[str, Any]:
        found = {
            "predicted": self.predicted, "low": self.low, "high": self.high, "measured": self.measured,
            "spread": self.spread, "ape": self.ape, "inside": self.inside,
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, eq=False)
class Timelines:
    """The same few passes twice. Segments are as `workbench.timeline` writes them; 0 ns is the start of the first pass."""

    passes: tuple[int, ...]
    repeat: int
    """Which measured repeat is shown, counted from 1: the one whose makespan is nearest the median."""
    repeat_makespan_s: float
    simulated: tuple[Mapping[str, Any], ...]
    measured: tuple[Mapping[str, Any], ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "passes": list(self.passes), "repeat": self.repeat, "repeat_makespan_s": self.repeat_makespan_s,
            "simulated": [dict(one) for one in self.simulated], "measured": [dict(one) for one in self.measured],
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class ScenarioResult:
    """One judged case."""

    name: str
    group: str
    tier: str
    policy: str
    prefetch: str
    capacity_experts: int
    metrics: tuple[Metric, ...]
    ledgers_equal: bool
    late_simulated: int
    late_measured: float
    """Median over repeats: the one count that time decides."""
    waves: int
    prefetch_issued: int
    shares_predicted: Mapping[str, float]
    shares_measured: Mapping[str, float]
    overlap: float | None
    """Share of the copies' time that the run did not wait for."""
    layer_ratio: tuple[float, ...]
    """Per layer, predicted ÷ measured time over the run."""
    layer_values: int
    layer_values_inside: int | None
    repeats: int
    layer_ids: tuple[int, ...] = ()
    """The model's own numbers of the MoE layers, as long as `layer_ratio`."""
    timelines: Timelines | None = None

    def metric(self, name: str) -> Metric | None:
        return next((found for found in self.metrics if found.name == name), None)

    def to_dict(self) -> dict[str, Any]:
        found = {
            "scenario": self.name, "tier": self.tier, "policy": self.policy, "prefetch": self.prefetch,
            "capacity_experts": self.capacity_experts, "repeats": self.repeats,
            "metrics": {metric.name: metric.to_dict() for metric in self.metrics},
            "ledgers_equal": self.ledgers_equal, "late_simulated": self.late_simulated,
            "late_measured": self.late_measured, "waves": self.waves, "prefetch_issued": self.prefetch_issued,
            "shares_predicted": dict(self.shares_predicted), "shares_measured": dict(self.shares_measured),
            "overlap": self.overlap, "layer_predicted_over_measured": list(self.layer_ratio),
            "layer_ids": list(self.layer_ids) or None, "layer_values": self.layer_values,
            "layer_values_inside": self.layer_values_inside,
            "timelines": None if self.timelines is None else self.timelines.to_dict(),
        }  # fmt: skip
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, slots=True, eq=False)
class ValidationResult:
    """A finished validation. `within` was given before it ran."""

    scenarios: tuple[ScenarioResult, ...]
    within: float | None
    calibration: Mapping[str, Any]
    environment: Mapping[str, Any]
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What was run, by group: trace, model, where experts lived, options."""

    @property
    def ok(self) -> bool:
        """Ledgers equal everywhere, and with `within` every TPOT (TTFT where there is none) no further off than that."""
        if not all(scenario.ledgers_equal for scenario in self.scenarios):
            return False
        if self.within is None:
            return True
        return all(metric is None or metric.ape <= self.within for _, metric in self.judged())

    def judged(self) -> list[tuple[ScenarioResult, Metric | None]]:
        """Each scenario with the metric that the threshold is about: TPOT, else TTFT, else the makespan."""
        return [
            (s, s.metric("tpot_s") or s.metric("ttft_s") or s.metric("makespan_s")) for s in self.scenarios
        ]

    def summary(self) -> dict[str, Any]:
        """Figures over all scenarios, absent where undefined."""
        tpots = [metric for s in self.scenarios if (metric := s.metric("tpot_s"))]
        apes = [metric.ape for metric in tpots]
        spreads = [metric.spread for metric in tpots if metric.spread is not None]
        inside = [
            metric.inside for s in self.scenarios for metric in s.metrics if metric.name != "makespan_s"
        ]
        known = [value for value in inside if value is not None]
        layers = [s for s in self.scenarios if s.layer_values_inside is not None]
        right, pairs = order_of(self.scenarios)
        found: dict[str, Any] = {
            "scenarios": len(self.scenarios),
            "ledgers_equal": all(s.ledgers_equal for s in self.scenarios),
            "tpot_median_ape": float(np.median(apes)) if apes else None,
            "tpot_p90_ape": float(np.percentile(apes, 90)) if apes else None,
            "spread_median": float(np.median(spreads)) if spreads else None,
            "order_right_frac": right / pairs if pairs else None,
            "order_pairs": pairs,
            "coverage_90": sum(known) / len(known) if known else None,
            "coverage_values": len(known),
            "coverage_p": binomial_p(sum(known), len(known)) if known else None,
            "layer_coverage_90": sum(s.layer_values_inside or 0 for s in layers)
            / sum(s.layer_values for s in layers)
            if layers
            else None,
            "layer_values": sum(s.layer_values for s in layers),
            "stalled_over_20_percent": sum(s.shares_measured["stall"] > 0.2 for s in self.scenarios),
            "with_prefetch": sum(s.prefetch != "none" for s in self.scenarios),
            "with_waves": sum(s.waves > 0 for s in self.scenarios),
            "tpot_span_x": max(m.measured for m in tpots) / min(m.measured for m in tpots) if tpots else None,
            "ok": self.ok,
        }
        return {name: value for name, value in found.items() if value is not None}

    def bars(self) -> dict[str, bool]:
        """Whether the suite's bars are met: errors (twice the spread where that is larger and at most 5 %), order, bands."""
        summary = self.summary()
        tpots = [metric for s in self.scenarios if (metric := s.metric("tpot_s"))]
        found = {"ledgers_equal": bool(summary["ledgers_equal"])}
        for name, bar, share in (
            ("tpot_median_ape", _BARS["tpot_median_ape"], 50),
            ("tpot_p90_ape", _BARS["tpot_p90_ape"], 90),
        ):
            of_bar = [metric.ape / _allowed(bar, metric.spread) for metric in tpots]
            found[name] = bool(tpots) and float(np.percentile(of_bar, share)) <= 1
        found["order_right"] = summary.get("order_right_frac", 1.0) >= _ORDER_BAR
        found["coverage"] = summary.get("coverage_p", 0.0) > 0.05
        low, high = _LAYER_COVERAGE
        found["layer_coverage"] = low <= summary.get("layer_coverage_90", 0.0) <= high
        return found

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenarios": [scenario.to_dict() for scenario in self.scenarios], "summary": self.summary(),
            "bars": self.bars(), "calibration": dict(self.calibration), "environment": dict(self.environment),
            "inputs": dict(self.inputs),
            **({} if self.within is None else {"within": self.within}),
        }  # fmt: skip

    def rows(self) -> list[dict[str, str]]:
        """The table for people: one line a scenario and metric."""
        shown = []
        for scenario in self.scenarios:
            for metric in scenario.metrics:
                band = (
                    "–"
                    if metric.low is None
                    else f"{format_seconds(metric.low)} … {format_seconds(metric.high)}"
                )
                shown.append(
                    {
                        "scenario": scenario.name, "metric": metric.name.removesuffix("_s"),
                        "predicted": format_seconds(metric.predicted), "90 % band": band,
                        "measured": format_seconds(metric.measured),
                        "spread": "–" if metric.spread is None else format_percent(metric.spread),
                        "error": format_percent(metric.ape),
                        "inside": {True: "yes", False: "no", None: "–"}[metric.inside],
                        "stall": f"{scenario.shares_predicted['stall']:.0%} / {scenario.shares_measured['stall']:.0%}",
                        "ledger": "equal" if scenario.ledgers_equal else "DIFFERS",
                    }
                )  # fmt: skip
        return shown

    def lines(self) -> list[str]:
        """What the table comes to."""
        s = self.summary()
        found = [
            f"{s['scenarios']} scenarios, ledgers {'equal in all' if s['ledgers_equal'] else 'NOT equal in all'}; "
            "stall shares are predicted / measured"
        ]
        if "tpot_median_ape" in s:
            found.append(
                f"TPOT error: median {s['tpot_median_ape']:.1%}, p90 {s['tpot_p90_ape']:.1%}; "
                f"spread of repeats: median {s.get('spread_median', 0.0):.1%}"
            )
        if "order_right_frac" in s:
            found.append(f"order of policies: {s['order_right_frac']:.1%} of {s['order_pairs']} pairs right")
        if "coverage_90" in s:
            found.append(
                f"inside the 90 % band: {s['coverage_90']:.1%} of {s['coverage_values']} values (p = {s['coverage_p']:.2g})"
            )
        if "layer_coverage_90" in s:
            found.append(f"per layer: {s['layer_coverage_90']:.1%} of {s['layer_values']:,} values")
        if self.within is not None:
            found.append(f"within {self.within:.0%}, as was asked: {'yes' if self.ok else 'NO'}")
        return found


def order_of(scenarios: Sequence[ScenarioResult]) -> tuple[int, int]:
    """Pairs of one group whose TPOT differ by more than the larger spread: how many are ordered right, and how many there are."""
    right = pairs = 0
    for one, two in itertools.combinations(scenarios, 2):
        a, b = one.metric("tpot_s"), two.metric("tpot_s")
        if one.group != two.group or a is None or b is None:
            continue
        spread = max(a.spread or 0.0, b.spread or 0.0) * max(a.measured, b.measured)
        if abs(a.measured - b.measured) <= spread:
            continue
        pairs += 1
        right += (a.measured < b.measured) == (a.predicted < b.predicted)
    return right, pairs


def _allowed(bar: float, spread: float | None) -> float:
    return max(bar, 2 * spread) if spread is not None and spread <= _STEADY else bar
