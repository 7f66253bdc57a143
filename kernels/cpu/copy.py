"""A copy from host memory to host memory with the threads that torch was given."""

from __future__ import annotations

from torch import Tensor

from ...errors import UsageError


def copy(source: Tensor, target: Tensor) -> Tensor:
    """`target` filled from `source`, bit for bit. Raises `UsageError` where they differ in shape or format."""
    if source.shape != target.shape or source.dtype != target.dtype:
        raise UsageError(
            f"a copy needs two alike, got {list(source.shape)} {source.dtype} and {list(target.shape)} {target.dtype}"
        )
    return target.copy_(source)
