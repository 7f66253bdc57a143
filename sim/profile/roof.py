"""The roofs of one machine as a profile needs them: bandwidth, dense peaks, processors, and what a launch costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..hardware import HardwareSpec

_WIDER = {"fp4": ("fp8", "bf16", "fp32"), "fp8": ("bf16", "fp32"), "int8": ("bf16", "fp32"), "fp16": ("bf16", "fp32"),
          "bf16": ("fp16", "fp32"), "tf32": ("bf16", "fp32"), "fp32": ()}  # fmt: skip
LAUNCH_S = 5e-6
"""What the shortest GPU kernels of the published tables take, order of magnitude; only a scale, the fit corrects it."""


@dataclass(frozen=True, slots=True)
class Roof:
    """Bytes/s of device memory, dense FLOP/s per arithmetic, count of streaming multiprocessors (or cores)."""

    bandwidth: float
    peaks: Mapping[str, float]
    processors: int = 1
    launch_s: float = LAUNCH_S

    def peak(self, arithmetic: str) -> float:
        """Dense peak of the arithmetic, or of the next wider one that the machine has."""
        for name in (arithmetic, *_WIDER.get(arithmetic, ())):
            if name in self.peaks:
                return float(self.peaks[name])
        return float(max(self.peaks.values()))

    def seconds(self, operation: Any) -> NDArray[np.float64]:
        """The floor: what its bytes or its FLOPs take, whichever is longer. No launch."""
        return np.maximum(np.asarray(operation.flops, np.float64) / self.peak(operation.arithmetic),
                          np.asarray(operation.bytes, np.float64) / self.bandwidth)  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return {"bandwidth": self.bandwidth, "processors": self.processors, "launch_s": self.launch_s,
                "peaks": dict(self.peaks)}  # fmt: skip


def roof_of(hardware: HardwareSpec, processors: int = 1, launch_s: float = LAUNCH_S) -> Roof:
    """The roofs of a hardware sheet. Peaks with "sparse" in their name are no roofs (case B17)."""
    peaks = {name: quantity.value for name, quantity in hardware.peaks if "sparse" not in name}
    return Roof(hardware.memory_bandwidth.value, peaks, processors, launch_s)
