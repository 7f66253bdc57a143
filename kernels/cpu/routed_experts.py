"""The routed experts alone, for tokens whose experts are known: what published tables of mixtures measure."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference.shapes import Activation, check_choices
from .fused_moe import mix_experts
from .router_top_k import by_expert


def routed_experts(
    x_TW: Tensor,
    weights_TK: Tensor,
    experts_TK: Tensor,
    w_in_NIW: Tensor,
    w_out_NWM: Tensor,
    *,
    activation: Activation,
) -> Tensor:
    """y_TW in the format of x: Σ over a token's experts of weight · expert(x). W is the width that experts work in.

    `weights_TK` fp32, `experts_TK` int64. Raises `UsageError` where the sizes of tokens and choices differ.
    """
    check_choices(x_TW, weights_TK, experts_TK)
    with torch.inference_mode():
        order = by_expert(weights_TK, experts_TK, w_in_NIW.shape[0])
        return mix_experts(x_TW, order, w_in_NIW, w_out_NWM, activation).to(x_TW.dtype)
