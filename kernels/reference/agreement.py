"""How far a fast kernel's result is from its reference, counted in roundings of its format; and how far it may be."""

from __future__ import annotations

import math

import torch
from torch import Tensor

ROUNDING = {torch.float32: 2.0**-20, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
"""Relative size of one rounding. Of fp32 16 of its 2⁻²⁴: long sums in another order, products in three TF32 parts."""

ALLOWED_ROUNDINGS = 8.0
"""Kernels store two or three intermediates in their format and round the result: a chain of four, each taken twice
because the largest of many thousand errors is compared. A wrong tile, mask or weight is off by hundreds."""

TRUNCATION = 2.0
"""Triton's interpreter cuts fp32 to bf16 instead of rounding: twice the error, and always to the same side."""

_TIE = 2.0**-14
"""Router weights closer than this (relatively) may come in another order where logits are summed in another order."""


def disagreement(result: Tensor, expected: Tensor) -> float:
    """The largest |result − expected| in roundings of (|expected| + its root mean square). Infinite for NaN or a gap in shape.

    The mean square stands for the terms that were summed: a result near zero still carries their roundings.
    """
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return math.inf
    if result.numel() == 0:
        return 0.0
    wide = expected.double()
    scale = wide.abs() + wide.square().mean().sqrt()
    error = (result.double() - wide).abs() / scale.clamp_min(torch.finfo(torch.float32).tiny)
    worst = float(error.max())
    return math.inf if math.isnan(worst) else worst / ROUNDING[expected.dtype]


def has_clear_choice(x_TD: Tensor, router_ND: Tensor, top_k: int) -> Tensor:
    """[T] true where a token's k-th expert is clearly ahead of the next: only there must two routers agree."""
    strongest = (
        torch.softmax(x_TD.double() @ router_ND.double().T, dim=-1).sort(dim=-1, descending=True).values
    )
    if top_k == strongest.shape[1]:
        return torch.ones(len(x_TD), dtype=torch.bool, device=x_TD.device)
    return strongest[:, top_k - 1] > strongest[:, top_k] * (1.0 + _TIE)
