"""What one machine charges for designs at every operating point, as columns of a table; and estimates of accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from ..sim.catalog import load_hardware
from ..sim.designs import DesignCosts, Designs, OperatingPoint, design_costs
from ..sim.designs.costs import OF_MIXTURE, PARTS
from ..sim.roofline import RooflinePrices
from .explore_study import DesignStudy, Machine, Point

if TYPE_CHECKING:
    import pandas as pd

_ACTIVATIONS = "bf16"


@dataclass(frozen=True)
class Priced:
    """A machine of a study: its prices, what was said about them, what it is."""

    prices: RooflinePrices
    warnings: tuple[str, ...]
    facts: dict[str, Any]


def prices_of(machine: Machine) -> Priced:
    """Raises `UsageError` for an unknown device or profile."""
    device = load_hardware(machine.hardware)
    if machine.profile is None:
        text = f"{machine.hardware}: no profile, so every time is a floor of the hardware sheet"
        return Priced(RooflinePrices(device, _ACTIVATIONS), (text,), device.to_dict())
    from ..sim.profile_prices import ProfilePrices
    from .profiles import load_named_profile, mismatches

    profile = load_named_profile(machine.profile)
    return Priced(
        ProfilePrices(device, _ACTIVATIONS, profile), tuple(mismatches(profile, device)), device.to_dict()
    )


def load_of(point: Point, source: Path | None) -> str:
    """The load distribution of a point; a trace's is the power law whose loads have the entropy of the trace's."""
    if not point.load.startswith("trace:"):
        return point.load
    from ..sim.ops.loads import power_law_loads
    from ..traces import read_trace
    from ..traces.statistics import counts_of, layer_ids_of

    named = Path(point.load.removeprefix("trace:"))
    path = named if named.is_absolute() or source is None else source.parent / named
    trace = read_trace(path)
    layers = range(trace.num_layers)
    loads = [counts_of(layer_ids_of(trace, layer), trace.num_experts).astype(np.float64) for layer in layers]

    def entropy(values: Any) -> float:
        share = values / values.sum()
        share = share[share > 0]
        return float(-(share * np.log(share)).sum())

    measured = float(np.mean([entropy(layer) for layer in loads]))
    tokens = trace.num_tokens
    low, high = 0.01, 1.2  # beyond it the cut law of the published tables becomes more even again

    def drawn(exponent: float) -> float:
        return entropy(power_law_loads(tokens, trace.num_experts, trace.top_k, exponent))

    if measured >= drawn(low):
        return "uniform"  # more even than any power law
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if drawn(middle) > measured else (low, middle)
    return f"power_law_{high:.2f}"


def costed(
    designs: Designs, points: Sequence[OperatingPoint], priced: Priced, plan: DesignStudy
) -> pd.DataFrame:
    """One row a design. Columns MEASURE:POINT: latency (s of a pass) with latency_low and latency_high, throughput
    (tokens/s a device), memory (bytes a device), measured (share of the time), bound and mixture_bound, part seconds,
    experts_touched, expert_bytes, all_to_all_bytes. Designs that do not fit a device's memory have no values there.
    """
    import pandas as pd

    columns: dict[str, Any] = {}
    for point in points:
        costs = design_costs(designs, point, priced.prices)
        columns |= {f"{name}:{point.name}": values for name, values in _columns(costs).items()}
        fits = columns[f"memory:{point.name}"] <= priced.prices.hardware.usable_bytes
        if plan.extrapolate == "refuse":
            fits = fits & ~costs.extrapolated
        for name in list(columns):
            if name.endswith(f":{point.name}") and not name.startswith(("memory", "bound", "mixture_bound")):
                columns[name] = np.where(fits, columns[name], np.nan)
    return pd.DataFrame(columns)


def _columns(costs: DesignCosts) -> dict[str, Any]:
    return {
        "latency": costs.seconds,
        "latency_low": costs.low,
        "latency_high": costs.high,
        "throughput": costs.tokens_per_s_per_device,
        "memory": costs.memory_bytes,
        "measured": costs.measured_share,
        "extrapolated": costs.extrapolated.astype(np.float64),
        "bound": costs.bound_by(),
        "mixture_bound": costs.bound_by(OF_MIXTURE),
        "mixture": costs.mixture_seconds(),
        "experts_touched": costs.experts_touched,
        "expert_bytes": costs.expert_bytes_read,
        "all_to_all_bytes": costs.all_to_all_bytes,
        **{f"part_{name}": costs.parts[name].seconds for name in PARTS},
    }


def accuracy_columns(plan: DesignStudy, designs: Designs) -> dict[str, Any]:
    """loss:LAW and leverage:LAW of the measures that the study asks for; NaN where a law refuses."""
    from ..sim.accuracy import ACCURACY_LAWS

    asked = [
        measure
        for measure, _ in plan.measures()
        if measure.partition(":")[0] in ("loss", "leverage") and measure != "loss:trained"
    ]
    found: dict[str, Any] = {}
    for measure in asked:
        law = ACCURACY_LAWS[measure.partition(":")[2]]
        assert plan.accuracy_tokens is not None
        inputs = accuracy_inputs(designs, plan.accuracy_tokens)
        found[measure] = law.estimate(inputs).value
    if found and not any(np.isfinite(values).any() for values in found.values()):
        law = ACCURACY_LAWS[asked[0].partition(":")[2]]
        refused = law.estimate(accuracy_inputs(designs, float(plan.accuracy_tokens or 0.0)))
        raise UsageError(f"{asked[0]}: the law refuses every design: {refused.reason(0)}")
    return found


def accuracy_inputs(designs: Designs, tokens: float) -> Any:
    """What the laws of accuracy take, of all designs."""
    from ..sim.accuracy import AccuracyInputs

    routers = designs.router_params * designs.moe_layers
    outside = designs.embedding_params + routers
    return AccuracyInputs.of(
        hidden=designs.hidden, expert_params=designs.expert_params, num_experts=designs.experts, top_k=designs.top_k,
        total_params=designs.total_params - outside, active_params=designs.active_params - outside,
        training_tokens=tokens, shared_params=designs.shared_params, embedding_params=designs.embedding_params,
        router_params=routers,
    )  # fmt: skip
