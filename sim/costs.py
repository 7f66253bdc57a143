"""What one pass costs on a machine, in whole nanoseconds: the one interface between model, machine and engine.

Shape letters: P = passes, L = MoE layers of the trace, C = classes of layers with equal cost, N = tokens that
one expert may serve in one pass. A cost table says where its times come from (`source`) and lists every
number it stands on (`provenance`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CostTable:
    """Times of the parts of each pass. All `_ns` are integers, never negative."""

    layer_class_L: NDArray[np.int32]
    """Class of each MoE layer; layers of one class cost the same."""
    before_ns_PC: NDArray[np.int64]
    """From the start of the layer until its experts are known: dense layers since the previous MoE layer, mixer,
    norms, router. In the first MoE layer also the embedding."""
    resident_ns_PC: NDArray[np.int64]
    """After the router, needing no routed expert: shared experts, latent down-projection."""
    expert_ns_CN: NDArray[np.int64]
    """[C, N + 1] compute of one routed expert for n tokens of the pass; column 0 is 0."""
    after_ns_PC: NDArray[np.int64]
    """After all routed experts: combine, latent up-projection; in the last MoE layer also trailing layers and the head."""
    copy_ns_C: NDArray[np.int64]
    """One expert over the host link, latency included."""
    storage_ns_C: NDArray[np.int64]
    """One expert read from storage, latency included."""
    expert_bytes_C: NDArray[np.int64]
    """Bytes of one routed expert in the format it is offloaded in."""
    copy_engines: int
    """Copies that the host link carries at the same time, each at the full bandwidth given."""
    source: str
    """One line, such as "roofline on datasheet numbers of h200-sxm"."""
    provenance: tuple[dict[str, object], ...]
    """Every number used: name, value, unit, kind, source."""

    def __post_init__(self) -> None:
        classes = len(self.expert_bytes_C)
        passes = self.before_ns_PC.shape[0]
        for name, expected in (
            ("before_ns_PC", (passes, classes)),
            ("resident_ns_PC", (passes, classes)),
            ("after_ns_PC", (passes, classes)),
            ("expert_ns_CN", (classes, self.expert_ns_CN.shape[-1])),
            ("copy_ns_C", (classes,)),
            ("storage_ns_C", (classes,)),
        ):
            array = getattr(self, name)
            if array.shape != expected:
                raise RuntimeError(f"cost table: {name} has shape {array.shape}, expected {expected}")
            if array.size and int(array.min()) < 0:
                raise RuntimeError(f"cost table: {name} holds a negative time")
        if (
            self.layer_class_L.size == 0
            or not 0 <= int(self.layer_class_L.min()) <= int(self.layer_class_L.max()) < classes
        ):
            raise RuntimeError(f"cost table: layer_class_L must hold classes 0 to {classes - 1}")
        if (self.expert_ns_CN[:, 0] != 0).any():
            raise RuntimeError("cost table: an expert without tokens must cost nothing")
        if self.copy_engines < 1:
            raise RuntimeError(f"cost table: copy_engines must be at least 1, got {self.copy_engines}")

    @property
    def num_passes(self) -> int:
        return int(self.before_ns_PC.shape[0])

    @property
    def num_layers(self) -> int:
        return int(self.layer_class_L.shape[0])
