"""What this machine can do at best: the roof that achieved shares are measured against.

Measured through the same thread settings as the kernels, best of the repeats: on a shared machine the best is the machine,
the median is the machine and its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import isqrt
from typing import cast

from ..sim.ops import Copy, Gemm, Operation
from .registry import kernel
from .subjects import Bench, float_format
from .timing import measure

_SQUARE = (
    1536  # of a product: large enough to be bound by arithmetic, a tenth of a second in fp32 on one core
)
_READ_BYTES = 2**28
_DEVICE_SQUARE, _DEVICE_COPY_BYTES = 8192, 2**30
"""What fills a large GPU; smaller where the arena is."""


@dataclass(frozen=True, slots=True)
class Roof:
    """Bytes per second read from memory, and FLOP/s of a large product, by format."""

    bytes_per_s: float
    flops_per_s: Mapping[str, float]

    def floor_s(self, operation: Operation) -> float:
        """The time below which no kernel can be: bytes or FLOPs, whichever takes longer."""
        work = float(cast(float, operation.bytes)), float(cast(float, operation.flops))
        return self.floor_of(*work, operation.arithmetic)

    def floor_of(self, num_bytes: float, flops: float, arithmetic: str) -> float:
        """The same for work that was counted."""
        peak = self.flops_per_s.get(arithmetic, max(self.flops_per_s.values()))
        return max(num_bytes / self.bytes_per_s, flops / peak)

    def best_with(self, other: Roof) -> Roof:
        """The higher of two measurements, number by number: a neighbour only ever lowers one."""
        flops = {
            name: max(value, other.flops_per_s.get(name, value)) for name, value in self.flops_per_s.items()
        }
        return Roof(max(self.bytes_per_s, other.bytes_per_s), flops)

    def to_dict(self) -> dict[str, float]:
        return {
            "bytes_per_s": self.bytes_per_s,
            **{f"{name}_flops_per_s": v for name, v in self.flops_per_s.items()},
        }


def measure_roof(bench: Bench, formats: Sequence[str] = ("bf16", "fp32"), *, budget_s: float = 1.0) -> Roof:
    """This machine's roof with the threads that are set. Raises `UsageError` for formats that kernels do not take."""
    import torch

    if bench.version == "gpu":
        return _device_roof(bench, formats, budget_s)
    from .cpu.compiled import plain
    from .cpu.rows import few_rows_product

    rows = min(_READ_BYTES, bench.arena.size_bytes // 4) // 4096
    vector, out = torch.ones(1, 1024).numpy(), torch.empty(1, rows).numpy()
    weights = [plain(bench.arena.take(rows, 1024, dtype=torch.float32)) for _ in range(2)]
    reads = [partial(few_rows_product, vector, w, out) for w in weights]
    read_s = measure(reads, budget_s=budget_s).best_s
    run, flops = kernel("gemm").load("cpu"), {}
    for form in formats:
        x, w = (bench.arena.take(_SQUARE, _SQUARE, dtype=float_format(form)) for _ in range(2))
        timing = measure(partial(run, x, w), min_samples=5, budget_s=budget_s)
        flops[form] = float(Gemm(_SQUARE, _SQUARE, _SQUARE).flops) / timing.best_s
    return Roof(rows * 4096 / read_s, flops)


def _device_roof(bench: Bench, formats: Sequence[str], budget_s: float) -> Roof:
    """Copy bandwidth (each byte read and written) and matrix rates as torch reaches them on the device."""
    import torch

    take = bench.arena.take
    size_bytes = min(_DEVICE_COPY_BYTES, bench.arena.size_bytes // 4)
    source = take(size_bytes, dtype=torch.uint8)
    target = torch.empty_like(source)
    within = Copy(size_bytes, "device", "device")
    timing = measure(partial(target.copy_, source), stopwatch=bench.stopwatch(within), budget_s=budget_s)
    side = max(16, min(_DEVICE_SQUARE, isqrt(bench.arena.size_bytes // 16) // 128 * 128))
    run, product, flops = kernel("gemm").load("gpu"), Gemm(side, side, side), {}
    for form in formats:
        x, w = (take(side, side, dtype=float_format(form)) for _ in range(2))
        took = measure(partial(run, x, w), stopwatch=bench.stopwatch(product), budget_s=budget_s)
        flops[form] = float(cast(float, product.flops)) / took.best_s
    return Roof(float(cast(float, within.bytes)) / timing.best_s, flops)
