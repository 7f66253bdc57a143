"""An exploration for the terminal: what was asked, the chosen designs against the base, in what they differ from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..sim.designs.costs import OF_MIXTURE
from ..sim.designs.front import front as undominated
from .explore import ExploreResult
from .explore_answer import Front
from .sweep_statistics import Interval
from .train_result import TrainedDesigns


def seconds_text(value: float) -> str:
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns" if value else "0 s"


def value_text(measure: str, value: float) -> str:
    """A measure with its unit; "–" for what is not known."""
    if not np.isfinite(value):
        return "–"
    kind = measure.partition(":")[0]
    if kind == "latency":
        return seconds_text(value)
    if kind == "throughput":
        return f"{value:,.0f} tok/s"
    if kind == "memory":
        return f"{value / 2**30:.1f} GiB"
    if kind in ("total_params", "active_params"):
        return f"{value / 1e9:.2f} B"
    if kind == "flops":
        return f"{value / 1e9:.2f} GFLOP"
    return f"{value:.4g}"


def table_rows(result: ExploreResult, machine: str) -> list[dict[str, str]]:
    """The chosen designs of one machine, why each was chosen, and its measures; latencies with their bands."""
    front = result.fronts[machine]
    if front is None:
        return []
    designs, costs = result.designs, result.costs[machine]
    rows = []
    for row in front.chosen:
        shown = {"design": designs["design"].iloc[row], "by": _by(designs.iloc[row]), "chosen as": _why(front, row)}
        for measure in front.measures:
            shown[measure] = _measured(measure, row, designs, costs)
        rows.append(shown)
    return rows


FEW = 12
"""Designs up to which all of them are shown, part by part."""
_PARTS = ("experts", "dispatch", "combine", "projections", "shared", "router", "mixers", "all-reduce", "rest")


def part_rows(result: ExploreResult, machine: str, point: str) -> list[dict[str, str]]:
    """Every design at one point: where the time of a pass goes, what its mixtures wait for, what one layer reads and sends."""
    costs = result.costs[machine]
    rows = []
    for row in range(len(result.designs)):
        here = costs.iloc[row]
        shown = {
            "design": str(result.designs["design"].iloc[row]), "by": _by(result.designs.iloc[row]),
            "pass": value_text("latency:", float(here[f"latency:{point}"])) + _band(here, point),
            "mixtures wait for": str(here[f"mixture_bound:{point}"]),
        }  # fmt: skip
        shown |= {part: value_text("latency:", float(here[f"part_{part}:{point}"])) for part in _PARTS}
        shown["experts touched"] = f"{here[f'experts_touched:{point}']:.1f}"
        shown["expert bytes"] = f"{here[f'expert_bytes:{point}'] / 1e6:.1f} MB"
        shown["sent"] = f"{here[f'all_to_all_bytes:{point}'] / 1e3:.1f} kB"
        shown["on a profile"] = f"{100 * here[f'measured:{point}']:.0f} %"
        rows.append(shown)
    unused = [part for part in _PARTS if all(one[part] in ("0 s", "–") for one in rows)]
    return [{name: text for name, text in one.items() if name not in unused} for one in rows]


def _band(costs: Any, point: str) -> str:
    low, high = (float(costs[f"latency_{edge}:{point}"]) for edge in ("low", "high"))
    return f" ({seconds_text(low)} to {seconds_text(high)})" if high > low else ""


def trained_rows(trained: TrainedDesigns) -> list[dict[str, str]]:
    """Each trained design: its held-out loss with the interval over seeds, and what it costs; * marks the small-scale front."""
    designs = trained.designs
    known = [design for design in designs if design.loss.mean is not None]
    values = np.array([[design.loss.mean, design.flops_per_token, design.total_params] for design in known], np.float64)
    best = {design.name for design, on in zip(known, undominated(values) if known else [], strict=True) if on}
    return [
        {
            "design": design.name, "mixture": design.shape, "held-out loss, nats a token": _interval(design.loss),
            "seeds": str(len(design.losses)), "MFLOP a token": f"{design.flops_per_token / 1e6:.3f}",
            "parameters": f"{design.total_params / 1e6:.2f} M", "front": "*" if design.name in best else "",
        }
        for design in designs
    ]  # fmt: skip


def _interval(found: Interval) -> str:
    if found.mean is None:
        return "–"
    band = "" if found.low is None else f" ({found.low:.4f} to {found.high:.4f})"
    return f"{found.mean:.4f}{band}"


def _by(row: Any) -> str:
    return str(row["transform"]) + (f" α={row['alpha']:g}" if row["alpha"] > 1 else "")


def _why(front: Front, row: int) -> str:
    reasons = ["knee"] if row == front.knee else []
    return ", ".join([*reasons, *(f"best {measure}" for measure, best in front.best.items() if best == row)])


def _measured(measure: str, row: int, designs: Any, costs: Any) -> str:
    from .explore_answer import COLUMNS

    column = COLUMNS.get(measure, measure)
    value = float((costs if column in costs else designs)[column].iloc[row])
    text = value_text(measure, value)
    return text + (_band(costs.iloc[row], measure.partition(":")[2]) if measure.startswith("latency:") else "")


def lines(result: ExploreResult) -> list[str]:
    """What stands under the tables: counts, what the constraints removed, what each point is bound by."""
    counts = result.counts
    told = [f"{counts['designs']:,} designs of {counts['combinations']:,} combinations in {result.seconds:.1f} s"]
    for reason, count in {**counts.get("left_out", {}), **counts.get("removed", {})}.items():
        if count:
            told.append(f"  left out: {count:,} for {reason}")
    for machine, front in result.fronts.items():
        if front is None:
            told.append(f"{machine}: no design has a value of every measure, so there is no front")
            continue
        costs = result.costs[machine]
        bounds = ", ".join(
            f"{point.name}: {costs[f'bound:{point.name}'].iloc[front.knee]} (mixture: "
            f"{costs[f'mixture_bound:{point.name}'].iloc[front.knee]}, "
            f"{100 * costs[f'measured:{point.name}'].iloc[front.knee]:.0f} % of the time on a profile)"
            for point in result.study.points
        )
        told.append(f"{machine}: {len(front.rows):,} designs on the front; the knee waits for {bounds}")
        told += _over_batches(result, machine, front.knee)
        if front.unknown:
            told.append(f"  {front.unknown:,} designs lack a value of some measure")
    return told


def _over_batches(result: ExploreResult, machine: str, row: int) -> list[str]:
    """At which batch the mixtures of a design begin to wait for something else, at the first decoding point."""
    from .explore_sensitivity import crossovers

    point = next((one for one in result.points if one.phase == "decode"), None)
    if point is None:
        return []
    found = crossovers(result, machine, row, point.name, of=OF_MIXTURE)
    changes = "; ".join(f"from {one.batch:,} on for {one.after}" for one in found)
    begin = found[0].before if found else str(result.costs[machine][f"mixture_bound:{point.name}"].iloc[row])
    text = f"  batches from {point.layout.dp} to 4,096 at {point.name}: its mixtures wait for {begin}"
    return [f"{text}; {changes}" if changes else f"{text} throughout"]
