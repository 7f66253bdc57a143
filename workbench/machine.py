"""From a model and a machine, both optional, to what a replay needs: bytes, costs, free space, facts for the record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..sim.passes import Passes
from ..traces.expert_trace import ExpertTrace

if TYPE_CHECKING:
    from ..sim.costs import CostTable
    from ..sim.hardware import HardwareSpec
    from ..sim.model import ModelSpec
    from ..sim.profile import Profile
    from ..sim.roofline import RooflinePrices

_ACTIVATIONS = "bf16"  # what flows between layers, and the KV cache


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """What is known beside the trace; None is unknown."""

    expert_bytes: int | None
    costs: CostTable | None
    auto_experts: int | None
    model_facts: dict[str, Any] | None
    hardware_facts: dict[str, Any] | None
    warnings: tuple[str, ...]
    host_expert_ns_CN: NDArray[np.int64] | None = None
    """What the host's cores take for one expert and n tokens; None where the sheet does not state their arithmetic."""

    @property
    def cost_facts(self) -> dict[str, Any] | None:
        if self.costs is None:
            return None
        return {"source": self.costs.source, "provenance": [dict(entry) for entry in self.costs.provenance]}


def prepare_machine(
    trace: ExpertTrace,
    passes: Passes,
    *,
    model: str | Path | ModelSpec | None,
    hardware: str | Path | HardwareSpec | None,
    profile: str | Path | Profile | None,
    weights: str,
    context: int,
    batch: int,
    want_auto: bool,
    experts_home: str,
) -> Machine:
    """Load what is given and check that it fits the trace. Raises `UsageError` naming both sides where it does not."""
    if model is None and hardware is not None:
        raise UsageError("hardware without a model gives no times: give --model too")
    if profile is not None and hardware is None:
        raise UsageError("a profile prices kernels; links and memory come from a hardware sheet: give --hardware too")
    if model is None:
        note = "no model and no hardware: this run counts experts, and has neither bytes nor times"
        return Machine(None, None, None, None, None, (note,))
    from ..sim.catalog import load_hardware, load_model

    spec = load_model(model) if isinstance(model, (str, Path)) else model
    warnings = list(_check_fits(spec, trace))
    expert_bytes = spec.expert_bytes(weights)
    model_facts = {**spec.to_dict(), "expert_bytes": expert_bytes, "expert_weights": weights}
    if hardware is None:
        warnings.append("no hardware: this run counts experts and bytes, and has no times")
        return Machine(expert_bytes, None, None, model_facts, None, tuple(warnings))
    from ..sim.capacity import auto_capacity
    from ..sim.model_costs import model_costs

    device = load_hardware(hardware) if isinstance(hardware, (str, Path)) else hardware
    prices, notes = _prices(device, profile)
    warnings += notes
    costs = model_costs(
        spec,
        prices,
        weights=weights,
        layer_ids=trace.layer_ids_L.tolist(),
        tokens_P=passes.tokens(),
        context_sum_P=passes.context_sum(),
        head_rows_P=passes.logit_rows(),
        max_tokens=int(passes.tokens().max()),
    )
    auto = None
    if want_auto:
        auto = auto_capacity(spec, device, weights=weights, context_tokens=context, batch=batch)
    host = _host_times(spec, device, costs)
    return Machine(expert_bytes, costs, auto, model_facts, device.to_dict(), tuple(warnings), host)


def _host_times(spec: ModelSpec, device: HardwareSpec, costs: CostTable) -> NDArray[np.int64] | None:
    """Of the roof of the host: its memory or its arithmetic, whichever takes longer."""
    from ..sim.engines.host_time import host_expert_ns

    if device.host_compute is None:
        return None
    flops = np.full(len(costs.expert_bytes_C), 2 * spec.moe.expert_weights, np.int64)
    return host_expert_ns(
        costs.expert_bytes_C, flops, costs.expert_ns_CN.shape[1] - 1,
        host_bytes_per_s=device.host_memory_bandwidth.value, host_flops_per_s=device.host_compute.value,
    )  # fmt: skip


def _prices(device: HardwareSpec, profile: str | Path | Profile | None) -> tuple[RooflinePrices, list[str]]:
    """The sheet's prices, or a profile's over them; what does not match between the two is noted."""
    from ..sim.roofline import RooflinePrices

    if profile is None:
        return RooflinePrices(device, _ACTIVATIONS), []
    from ..sim.profile_prices import ProfilePrices
    from .profiles import load_named_profile, mismatches

    found = load_named_profile(profile) if isinstance(profile, (str, Path)) else profile
    return ProfilePrices(device, _ACTIVATIONS, found), mismatches(found, device)


def _check_fits(spec: ModelSpec, trace: ExpertTrace) -> list[str]:
    if not spec.moe_layer_ids:
        raise UsageError(f"model {spec.name} is dense: it has no routed experts to replay")
    for what, of_model, of_trace in (
        ("experts a layer", spec.num_experts, trace.num_experts),
        ("experts a token (top-k)", spec.top_k, trace.top_k),
    ):
        if of_model != of_trace:
            raise UsageError(
                f"model {spec.name} has {of_model} {what} and the trace of {trace.model!r} has {of_trace}: "
                f"choose the model that the trace was recorded from"
            )
    unknown = sorted(set(trace.layer_ids_L.tolist()) - set(spec.moe_layer_ids))
    if unknown:
        raise UsageError(
            f"the trace holds experts of layer {unknown[0]}, which is no MoE layer of {spec.name} "
            f"(its MoE layers: {', '.join(map(str, spec.moe_layer_ids))})"
        )
    missing = len(spec.moe_layer_ids) - trace.num_layers
    return [f"the trace lacks {missing} of the {len(spec.moe_layer_ids)} MoE layers of {spec.name}"] if missing else []
