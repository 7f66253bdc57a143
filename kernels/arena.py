"""One large block of numbers from which every measured kernel takes its arrays.

Measured kernels must find their weights in memory, not in the cache, as a model with many layers would. Views that wander
through one block larger than the cache give that without allocating anything between measurements. The block holds bf16
numbers from a normal distribution; two of them side by side, read as fp32, are the second one with more digits.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_REPEATED = 2**25  # numbers drawn; the block repeats them, which neither caches nor arithmetic can notice
_ALIGNMENT_BYTES = 4096


class Arena:
    """`size_bytes` of normal numbers (standard deviation 1) on a device. Views of it must not be written to."""

    def __init__(self, size_bytes: int, *, device: str = "cpu", seed: int = 0) -> None:
        import torch

        count = size_bytes // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES // 2
        if count <= 0:
            raise UsageError(f"an arena needs at least {_ALIGNMENT_BYTES} bytes, got {size_bytes}")
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.randn(min(count, _REPEATED), generator=generator).to(torch.bfloat16).to(device)
        self.device = device
        self._block = torch.empty(count, dtype=torch.bfloat16, device=device)
        for start in range(0, count, len(drawn)):
            self._block[start : start + len(drawn)] = drawn[: count - start]
        self._next_bytes = 0

    @property
    def size_bytes(self) -> int:
        return int(self._block.numel()) * 2

    def take(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """The next view of that shape; starts over at the end. Raises `UsageError` for one larger than the arena."""
        needed = math.prod(shape) * dtype.itemsize
        if needed > self.size_bytes:
            raise UsageError(f"an array of {needed} bytes does not fit into an arena of {self.size_bytes}")
        if self._next_bytes + needed > self.size_bytes:
            self._next_bytes = 0
        start = self._next_bytes // 2
        self._next_bytes += -(-needed // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        return self._block[start : start + needed // 2].view(dtype).view(shape)
