"""What makes a design impossible, each reason by name: how many it removes, and which two contradict each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..hardware import HardwareSpec
from ..model import ModelSpec
from .columns import Designs
from .costs import memory_bytes
from .point import OperatingPoint
from .resize import sharded

Mask = NDArray[np.bool_]
CONSTRAINTS: Mapping[str, str] = MappingProxyType(
    {
        "top-k": "top-k is from 1 to the number of experts",
        "latent": "the latent width is below the model's",
        "multiple": "expert width and latent width are multiples of the tensor cores' tile",
        "layout": "experts, expert width, shared width, KV heads and batch can be dealt out over the ranks of every point",
        "memory": "weights and KV cache of every point fit into one device's memory",
        "max_total_params": "parameters in all, at most",
        "min_total_params": "parameters in all, at least",
        "max_active_params": "parameters a token uses, at most",
        "min_active_params": "parameters a token uses, at least",
    }
)


@dataclass(frozen=True, slots=True)
class Limits:
    """What is asked of designs. None: not asked."""

    multiple: int = 64
    """Tensor cores take tiles whose sides are multiples of 64 in bf16 (CUTLASS); 1 asks for nothing."""
    memory: bool = True
    max_total_params: float | None = None
    min_total_params: float | None = None
    max_active_params: float | None = None
    min_active_params: float | None = None


@dataclass(frozen=True)
class Checked:
    """Which designs are left, and how many each constraint removes by itself."""

    feasible: Mask
    removed: dict[str, int]
    """Constraint → designs that break it, whether or not they break another."""


def checked(
    designs: Designs, limits: Limits, points: Sequence[OperatingPoint], hardware: HardwareSpec | None
) -> Checked:
    """Judge all designs. Raises `UsageError` where none is left: how many each removed, and a pair that excludes all."""
    kept = _masks(designs, limits, points, hardware)
    feasible = np.ones(len(designs), np.bool_)
    for mask in kept.values():
        feasible &= mask
    removed = {name: int((~mask).sum()) for name, mask in kept.items()}
    if len(designs) and not feasible.any():
        raise UsageError(_nothing_left(kept, removed, len(designs)))
    return Checked(feasible, removed)


def _nothing_left(kept: Mapping[str, Mask], removed: Mapping[str, int], count: int) -> str:
    told = ", ".join(f"{name} removes {n:,}" for name, n in removed.items() if n)
    text = f"no design of {count:,} is feasible: {told}"
    pairs = [
        f"{first} ({CONSTRAINTS[first]}) and {second} ({CONSTRAINTS[second]})"
        for first, second in combinations(kept, 2)
        if kept[first].any() and kept[second].any() and not (kept[first] & kept[second]).any()
    ]
    return text + (f"; these contradict each other: {'; '.join(pairs)}" if pairs else "")


def _masks(
    designs: Designs, limits: Limits, points: Sequence[OperatingPoint], hardware: HardwareSpec | None
) -> dict[str, Mask]:
    kept: dict[str, Mask] = {
        "top-k": (designs.top_k >= 1) & (designs.top_k <= designs.experts),
        "latent": np.asarray(designs.latent < designs.hidden),
        "multiple": (designs.width % limits.multiple == 0) & (designs.latent % limits.multiple == 0),
    }
    layout = np.ones(len(designs), np.bool_)
    for point in points:
        ranks = point.layout
        layout &= (designs.experts % ranks.ep == 0) & (designs.width % ranks.expert_tp == 0)
        layout &= designs.shared % ranks.tp == 0
        layout &= np.array([_deals(model, ranks.tp) for model in designs.skeletons])[designs.skeleton]
    kept["layout"] = layout
    if limits.memory and hardware is not None:
        fits = np.ones(len(designs), np.bool_)
        for point in points:
            fits &= memory_bytes(designs, point) <= hardware.usable_bytes
        kept["memory"] = fits
    for name, values in (("total_params", designs.total_params), ("active_params", designs.active_params)):
        most, least = getattr(limits, f"max_{name}"), getattr(limits, f"min_{name}")
        if most is not None:
            kept[f"max_{name}"] = np.asarray(values <= most)
        if least is not None:
            kept[f"min_{name}"] = np.asarray(values >= least)
    return kept


def _deals(model: ModelSpec, tp: int) -> bool:
    try:
        for layer in model.layers:
            if layer.mixer is not None:
                sharded(layer.mixer, tp)
    except UsageError:
        return False
    return True
