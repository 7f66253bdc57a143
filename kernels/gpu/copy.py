"""A copy between host and device memory by the device's copy engine."""

from __future__ import annotations

from torch import Tensor

from ..reference.shapes import alike


def copy(source: Tensor, target: Tensor, *, queued: bool = False) -> Tensor:
    """`target` filled from `source`, bit for bit. Raises `UsageError` where they differ in shape or format.

    `queued` does not wait for the device, which only pinned host memory allows.
    """
    alike(source, target)
    return target.copy_(source, non_blocking=queued)
