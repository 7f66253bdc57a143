"""Compiled loops over fp32 and bf16 arrays: the decorators, and the few scalar steps that numba lacks.

torch's bf16 tensors reach numba as uint16 (`plain`); `load` widens one value, by the type of its array, so that one source
serves both formats. Machine code is kept on disk under a hash of this folder, as in `sim.compiled`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from numpy.typing import NDArray

from ...errors import UsageError
from ...sim.compiled import CACHE_DIRECTORY

if TYPE_CHECKING:
    from torch import Tensor

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _source_hash() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


_DIRECTORY = CACHE_DIRECTORY.with_name(f"compiled-kernels-{_source_hash()}")


def parallel(function: _Function) -> _Function:
    """Compile with `prange` over the threads that numba was given. Sums may be reordered."""
    return _compiled(function, parallel=True)


def serial(function: _Function) -> _Function:
    """Compile for one thread. Sums may be reordered, infinities and NaN are kept."""
    return _compiled(function, parallel=False)


def inlined(function: _Function) -> _Function:
    """A small part of compiled loops, made part of each."""
    result: _Function = numba.njit(fastmath=_FAST, forceinline=True, nogil=True)(function)
    return result


_FAST = {
    "nsz",
    "arcp",
    "contract",
    "afn",
    "reassoc",
}  # all of fast-math that still lets infinities be infinite


def _compiled(function: _Function, *, parallel: bool) -> _Function:
    before = numba.config.CACHE_DIR
    try:
        _DIRECTORY.mkdir(parents=True, exist_ok=True)
        numba.config.CACHE_DIR = str(_DIRECTORY)
        result: _Function = numba.njit(cache=True, fastmath=_FAST, parallel=parallel, nogil=True)(function)
    finally:
        numba.config.CACHE_DIR = before
    return result


def plain(tensor: Tensor) -> NDArray[Any]:
    """The tensor's own memory as numpy sees it: fp32 as it is, bf16 as uint16. Contiguous, copied only if it was not."""
    import torch

    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.detach().contiguous().view(torch.uint16).numpy())
    if tensor.dtype == torch.float32:
        return np.asarray(tensor.detach().contiguous().numpy())
    raise UsageError(
        f"the processor's kernels work in fp32 and bf16, got {str(tensor.dtype).removeprefix('torch.')}"
    )


@intrinsic  # type: ignore[untyped-decorator]
def load(_context: Any, value: Any) -> Any:
    """fp32 of one fp32 or bf16 (uint16) value."""
    if value == types.float32:
        return types.float32(value), lambda context, builder, signature, arguments: arguments[0]

    def widen(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        wide = builder.shl(builder.zext(arguments[0], ir.IntType(32)), ir.Constant(ir.IntType(32), 16))
        return builder.bitcast(wide, ir.FloatType())

    return types.float32(types.uint16), widen


@intrinsic  # type: ignore[untyped-decorator]
def _float_to_bits(_context: Any, _value: Any) -> Any:
    def cast(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.uint32(types.float32), cast


@inlined
def bf16_bits(x: np.float32) -> np.uint16:
    """The nearest bf16, ties to even; for numbers that are not NaN."""
    bits = _float_to_bits(x)
    return np.uint16((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16))


@intrinsic  # type: ignore[untyped-decorator]
def _bits_to_float(_context: Any, _value: Any) -> Any:
    def cast(_ctx: Any, builder: Any, _signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), cast


@inlined
def exponential(x: np.float32) -> np.float32:
    """e^x for x ≤ 0 to 2e-7 of its value, 0 below −87. Cephes' expf: unlike the library's it becomes vector code."""
    x = max(x, np.float32(-87.0))
    n = np.floor(x * np.float32(1.44269504) + np.float32(0.5))
    r = x - n * np.float32(0.693359375) + n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    p = p * r * r + r + np.float32(1.0)
    scaled: np.float32 = p * _bits_to_float((np.int32(n) + np.int32(127)) << np.int32(23))
    return scaled
