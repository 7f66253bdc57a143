"""What every operation shares: sizes that are one number or a column of a table, and the bytes of a number format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from ..formats import number_format

Floats = NDArray[np.float64]
Size = int | NDArray[np.int64] | NDArray[np.float64]
"""One shape's size, or the sizes [R] of a table's rows: every formula serves both."""
Work = float | Floats
"""A count of operations or bytes: a float for one shape, [R] float64 for a table. Exact below 2**53."""


class Operation(Protocol):
    """What a kernel does, with its shape. `name` is its key in `sim.ops.registry` and in a profile."""

    name: ClassVar[str]

    @property
    def flops(self) -> Work: ...

    @property
    def bytes(self) -> Work:
        """Bytes of device memory that must move at least once: inputs read once, outputs written once."""
        ...

    @property
    def arithmetic(self) -> str:
        """The arithmetic whose peak bounds it: a key of a hardware sheet's `peaks`."""
        ...


def number(value: Any) -> Floats:
    """`value` as float64, so that products of large sizes neither overflow nor lose digits below 2**53."""
    return np.asarray(value, np.float64)


def tidy(value: Floats | np.float64) -> Work:
    """A plain float for one shape, the column for a table."""
    array = np.asarray(value, np.float64)
    return float(array) if array.ndim == 0 else array


def stored_bytes(elements: Floats | np.float64, format: str) -> Floats:
    """Bytes that `elements` values take in `format`, scales included, rounded up (as `sim.formats.bytes_of`)."""
    bits = number_format(format).bits
    return np.asarray(np.ceil(elements * bits.numerator / (bits.denominator * 8)))


def wider(weights: str, activations: str) -> str:
    """The arithmetic of a product of two formats: the tensor cores work in the wider of the two."""
    order = {"fp4": 0, "fp8": 1, "int8": 1, "bf16": 2, "fp16": 2, "tf32": 3, "fp32": 4}
    first, second = number_format(weights).computes_as, number_format(activations).computes_as
    return first if order[first] >= order[second] else second


def shape_of(operation: Operation, names: Mapping[str, object] | tuple[str, ...]) -> dict[str, object]:
    """The named fields of an operation, as a row (or columns) of a table."""
    return {name: getattr(operation, name) for name in names}
