"""Single machine instructions on 64-bit words that numba has no name for. For compiled code only."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic


@intrinsic  # type: ignore[untyped-decorator]
def lowest_bit(typing_context: Any, word: Any) -> Any:
    """Index of the lowest bit that is set, in a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic  # type: ignore[untyped-decorator]
def count_bits(typing_context: Any, word: Any) -> Any:
    """How many bits are set."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.int64(types.uint64), generate
