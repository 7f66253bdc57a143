"""How an operation's fields are read: which make its whole shape, which count the work of one run, which name a kernel.

A run is a point of a grid over two axes inside one shape: `b` (tokens, context, m) and, where there is one, `a` (batch,
or the load distribution). The remaining sizes are the shape; text and flags, with framework and kernel, the group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..ops import operation_entry

Floats = NDArray[np.float64]
_CATEGORY_A = {"moe": "distribution", "moe_layer": "distribution"}
_NOT_SIZES = {"distinct", "pairs", "ratio"}
_MODEL = {
    "moe": ("hidden", "width", "top_k", "num_experts"),
    "moe_layer": ("hidden", "width", "top_k", "num_experts"),
}


@dataclass(frozen=True, slots=True)
class Axes:
    """The fields of one operation by their part. `a` is None where there is one axis only."""

    operation: str
    shape: tuple[str, ...]
    a: str | None
    b: str
    group: tuple[str, ...]
    defaults: Mapping[str, Any]
    a_is_category: bool = False

    @property
    def model(self) -> tuple[str, ...]:
        """The part of the shape that a never measured model changes; empty where the idea makes no sense."""
        return _MODEL.get(self.operation, ())

    def size(self, name: str, value: Any) -> Any:
        """A size as a number: a window or latent width that is absent is 0, a value width that is absent is 0 too."""
        return 0 if value is None else value


def axes_of(operation: str) -> Axes:
    """The parts of an operation's fields. Raises `UsageError` on an unknown operation."""
    entry = operation_entry(operation)
    defaults = {field.name: field.default for field in fields(entry.operation)}
    a = _CATEGORY_A.get(operation) or (entry.steps[0] if len(entry.steps) > 1 else None)
    b = entry.steps[-1]
    text = {f.name for f in fields(entry.operation) if str(f.type) in ("str", "bool") or "Literal" in str(f.type)
            or str(f.type) == "Kind"}  # fmt: skip
    group = tuple(name for name in entry.shape if name in text and name != a)
    skip = {a, b, *group, *_NOT_SIZES}
    shape = tuple(name for name in entry.shape if name not in skip)
    return Axes(operation, shape, a, b, group, defaults, operation in _CATEGORY_A)


def coordinates(operation: str, shape: Mapping[str, Floats]) -> Floats:
    """Where a shape lies among others [S, C]: binary logarithms, spread where kernels change by kind.

    A doubling is one unit. Attention kernels are other ones for plain heads (as many KV heads as heads), for groups
    wider than a tensor-core tile's rows, and where a window cuts: such shapes lie some units apart. Experts are placed by
    what one rank holds of them: columns of a split width, whole experts of a split mixture.
    """
    logs = [np.log2(np.maximum(shape[name], 0.25)) for name in shape]
    columns = dict(zip(shape, logs, strict=True))
    if (
        operation in ("attention_prefill", "attention_decode")
        and {"heads", "kv_heads", "window"} <= shape.keys()
    ):
        columns["head_dim"] = 2.0 * columns["head_dim"]
        window = shape["window"]
        columns["window"] = np.where(window > 0, np.log2(np.maximum(window, 1.0)) - 7.0, 6.0)
        ratio = shape["heads"] / np.maximum(shape["kv_heads"], 1.0)
        columns["plain"] = 2.0 * (ratio == 1)
        columns["wide"] = 2.0 * (ratio > 32)
        columns["heads"] = np.log2(ratio)
    if {"width", "tp", "num_experts", "ep"} <= shape.keys():
        columns["width"] = columns["width"] - columns["tp"]
        columns["ep"] = columns["num_experts"] - columns["ep"]
    return np.stack([np.asarray(c, np.float64) for c in columns.values()], axis=-1)
