"""Named transformations of a mixture's shape, over columns: arXiv 2601.18089 (latent), 2401.06066 (fine-grained experts).

    standard            as it is
    latent-efficiency   ℓ = d/α, N → α·N: the same parameters, α times fewer routed FLOPs and bytes travelling
    latent-accuracy     ℓ = d/α, N → α·N, K → α·K: about the same routed FLOPs and bytes, α times the experts a token

A shape that would not be whole is left out and told of, never rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ..model import ModelSpec
from .columns import Ints, with_mixture

Shape = dict[str, Ints]
"""Columns `SHAPE` of `columns.py`, and `hidden`, all [R]."""
Whole = NDArray[np.bool_]


def _standard(shape: Shape, alpha: NDArray[np.float64]) -> tuple[Shape, Whole]:
    return shape, np.ones(len(alpha), np.bool_)


def _latent(shape: Shape, alpha: NDArray[np.float64], *, scale_top_k: bool) -> tuple[Shape, Whole]:
    """From a standard mixture. α = 1 keeps the width and has no projections: the standard mixture itself."""
    latent, experts = shape["hidden"] / alpha, shape["experts"] * alpha
    top_k = shape["top_k"] * alpha if scale_top_k else shape["top_k"].astype(np.float64)
    whole = (latent % 1 == 0) & (experts % 1 == 0) & (top_k % 1 == 0) & (shape["latent"] == 0)
    made = {
        **shape, "latent": np.where(alpha > 1, latent, 0).astype(np.int64), "experts": experts.astype(np.int64),
        "top_k": top_k.astype(np.int64),
    }  # fmt: skip
    return made, whole


def _efficiency(shape: Shape, alpha: NDArray[np.float64]) -> tuple[Shape, Whole]:
    return _latent(shape, alpha, scale_top_k=False)


def _accuracy(shape: Shape, alpha: NDArray[np.float64]) -> tuple[Shape, Whole]:
    return _latent(shape, alpha, scale_top_k=True)


TRANSFORMS: Mapping[str, Callable[[Shape, NDArray[np.float64]], tuple[Shape, Whole]]] = MappingProxyType(
    {"standard": _standard, "latent-efficiency": _efficiency, "latent-accuracy": _accuracy}
)


def fine_grained(shape: Shape, split: Ints) -> tuple[Shape, Whole]:
    """Each expert cut into `split` of m/split, and as many times more chosen: the same parameters and FLOPs."""
    width = shape["width"] / split
    made = {
        **shape, "width": width.astype(np.int64), "experts": shape["experts"] * split,
        "top_k": shape["top_k"] * split,
    }  # fmt: skip
    return made, width % 1 == 0


def standard_counterpart(model: ModelSpec, multiple: int = 64) -> ModelSpec:
    """The standard mixture with a latent one's total and active parameters.

    K is the nearest whole number to K·ℓ/d, m makes the active parameters equal (a multiple of `multiple`), N the total.
    Raises `UsageError` for a model whose mixture is standard already.
    """
    moe = model.moe
    if moe.latent is None:
        raise UsageError(f"model {model.name} has no latent mixture: it is its own standard counterpart")
    projections = moe.latent_weights
    matrices = 3 if moe.gated else 2
    active = moe.top_k * moe.expert_weights + projections + moe.hidden * moe.num_experts
    top_k = max(1, round(moe.top_k * moe.latent / moe.hidden))
    total = moe.num_experts * moe.expert_weights + projections + moe.hidden * moe.num_experts
    experts = round(moe.num_experts * moe.latent / moe.hidden)
    width = moe.intermediate
    for _ in range(8):  # the router's weights depend on N, so a few rounds settle it
        ideal = (active - moe.hidden * experts) / (top_k * matrices * moe.hidden)
        width = max(multiple, round(ideal / multiple) * multiple)
        experts = max(top_k, round(total / (matrices * moe.hidden * width + moe.hidden)))
    return with_mixture(
        model, f"{model.name}/standard", experts=experts, top_k=top_k, width=width, latent=0,
        shared=moe.shared_intermediate,
    )  # fmt: skip
