"""What every Triton kernel here shares: the decorator, the interpreter's limits, and what a launch demands of its arrays."""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import triton
import triton.language as tl
from torch import Tensor

from ...errors import UsageError

FORMATS = (torch.float32, torch.float16, torch.bfloat16)
INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
"""Whether kernels run in Triton's interpreter: fixed when Triton is imported. A kernel may read it."""

SMALLEST_DOT = 16
"""Rows, columns and depth that `tl.dot` needs at least: tensor cores work on 16 × 16."""

LOG2_E = 1.4426950408889634
"""log₂ e: the device has exp2 in hardware, so scores are scaled by this once and exponentials are powers of two."""

INTERPRETED_MULTIPROCESSORS = 4
"""What the interpreter is said to have, so that small tests split work as a large device would."""

_Kernel = TypeVar("_Kernel", bound=Callable[..., Any])


def jit(function: _Kernel) -> Any:
    """`triton.jit`, typed: a launchable kernel, or a device function called by kernels."""
    return triton.jit(function)


def cdiv(amount: int, step: int) -> int:
    """Steps that cover `amount`."""
    return -(-amount // step)


def tile(size: int, largest: int | None = None, smallest: int = SMALLEST_DOT) -> int:
    """The power of two that covers `size`, within bounds: the extent of a tile along a dimension of that size."""
    covering = 1 << max(0, size - 1).bit_length()
    return max(smallest, covering if largest is None else min(covering, largest))


def multiprocessors(array: Tensor) -> int:
    """Multiprocessors of the array's device."""
    if not array.is_cuda:
        return INTERPRETED_MULTIPROCESSORS
    return int(torch.cuda.get_device_properties(array.device).multi_processor_count)


def stages_that_fit(array: Tensor, stage_bytes: int, most: int) -> int:
    """Tiles in flight: at most `most`, and with one more for the pipeline inside the shared memory of a thread block."""
    if not array.is_cuda:
        return most
    limit = int(torch.cuda.get_device_properties(array.device).shared_memory_per_block_optin)
    return max(1, min(most, limit // stage_bytes - 1))


def check_arrays(*, same_format: dict[str, Tensor], others: dict[str, Tensor] | None = None) -> None:
    """Raise `UsageError` unless all arrays are contiguous on one device that Triton can use, the former in one format."""
    check_placement({**same_format, **(others or {})})
    first, *_ = same_format
    format = same_format[first].dtype
    if format not in FORMATS:
        raise UsageError(f"{first} is {format}, expected one of {', '.join(map(str, FORMATS))}")
    for name, array in same_format.items():
        if array.dtype != format:
            raise UsageError(f"{name} is {array.dtype}, but {first} is {format}")


def check_placement(arrays: dict[str, Tensor]) -> None:
    """Raise `UsageError` unless all arrays are contiguous on one device that Triton can use."""
    first, *_ = arrays
    device = arrays[first].device
    if device.type != "cuda" and not INTERPRETED.value:
        raise UsageError(
            f"{first} is on {device}; Triton kernels need a CUDA device, or Triton's interpreter "
            "(set TRITON_INTERPRET=1 before Triton is first imported; it is slow and meant for tests)"
        )
    for name, array in arrays.items():
        if array.device != device:
            raise UsageError(f"{name} is on {array.device}, but {first} is on {device}")
        if not array.is_contiguous():
            raise UsageError(
                f"{name} must be contiguous, got strides {array.stride()} for shape {list(array.shape)}"
            )


@jit
def dot(a, b, acc):
    """a @ b + acc, summed in fp32. fp32 inputs are split into three TF32 products, which keeps fp32's accuracy on tensor cores.

    The interpreter holds bf16 as the integers of its bits and would multiply those (seen with Triton 3.9: errors of
    10²²), so there the operands are widened first; bf16 products are exact in fp32, so the sum is what a device gives
    up to its order. The tensor cores' own bf16 path is tested on a device only.
    """
    if INTERPRETED:
        a = a.to(tl.float32)
        b = b.to(tl.float32)
    return tl.dot(a, b, acc, input_precision="tf32x3")
