"""The routed experts alone, for tokens whose experts are known: what published tables of mixtures measure."""

from __future__ import annotations

from torch import Tensor

from ..reference.shapes import Activation, check_choices, moe_sizes
from .expert_gemm import mix_experts
from .launch import check_arrays


def routed_experts(
    x_TW: Tensor,
    weights_TK: Tensor,
    experts_TK: Tensor,
    w_in_NIW: Tensor,
    w_out_NWM: Tensor,
    *,
    activation: Activation,
) -> Tensor:
    """y_TW in the format of x, as `kernels.cpu.routed_experts`. Raises `UsageError` where sizes or devices do not fit."""
    check_choices(x_TW, weights_TK, experts_TK)
    one_row_each_NW = w_in_NIW[:, 0]  # has the shape that a router would have
    sizes = moe_sizes(x_TW, one_row_each_NW, w_in_NIW, w_out_NWM, experts_TK.shape[1], activation)
    check_arrays(
        same_format={"x_TW": x_TW, "w_in_NIW": w_in_NIW, "w_out_NWM": w_out_NWM},
        others={"weights_TK": weights_TK, "experts_TK": experts_TK},
    )
    return mix_experts(x_TW, weights_TK, experts_TK, w_in_NIW, w_out_NWM, sizes, activation)
