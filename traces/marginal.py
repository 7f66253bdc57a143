"""`MarginalTrace`: how often each expert was used, without knowing by which token or together with which others."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

CANNOT = (
    "counts per expert are no access trace: they do not say which experts a token used together nor in what order, "
    "so no cache can be replayed on them; they give load, skew and entropy only"
)


@dataclass(frozen=True, slots=True, eq=False)
class MarginalTrace:
    """Counts per step, layer and expert (letters: P steps or passes, L MoE layers, N experts)."""

    counts_PLN: NDArray[np.int64]
    layer_ids_L: NDArray[np.int32]
    model: str
    source: str
    licence: str
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        shape = self.counts_PLN.shape
        if len(shape) != 3 or min(shape) < 1:
            raise UsageError(
                f"counts must have shape [steps, layers, experts] with none zero, got {list(shape)}"
            )
        if (self.counts_PLN < 0).any():
            raise UsageError("counts must not be negative")
        if self.layer_ids_L.shape != (shape[1],):
            raise UsageError(f"layer_ids must name {shape[1]} layers, got {self.layer_ids_L.shape[0]}")

    @property
    def num_layers(self) -> int:
        return int(self.counts_PLN.shape[1])

    @property
    def num_experts(self) -> int:
        return int(self.counts_PLN.shape[2])

    @property
    def logical(self) -> int:
        """Expert assignments in all: tokens × layers × top-k, before any sharing."""
        return int(self.counts_PLN.sum())
