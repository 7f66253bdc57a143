"""A mixture-of-experts layer in Triton: route, sort tokens by expert, grouped GEMM, activation, grouped GEMM, weighted sum."""

from __future__ import annotations

from torch import Tensor

from ..reference.shapes import Activation, moe_sizes
from .expert_gemm import mix_experts
from .launch import check_arrays
from .routing import route


def fused_moe(
    x_TD: Tensor,
    router_ND: Tensor,
    w_in_NID: Tensor,
    w_out_NDM: Tensor,
    *,
    top_k: int,
    activation: Activation,
    renormalise: bool = True,
) -> Tensor:
    """y_TD, as `kernels.reference.fused_moe`. Seven launches and nothing read back. Raises `UsageError` as there."""
    sizes = moe_sizes(x_TD, router_ND, w_in_NID, w_out_NDM, top_k, activation)
    check_arrays(
        same_format={"x_TD": x_TD, "router_ND": router_ND, "w_in_NID": w_in_NID, "w_out_NDM": w_out_NDM}
    )
    weights_TK, experts_TK = route(x_TD, router_ND, top_k, renormalise)
    return mix_experts(x_TD, weights_TK, experts_TK, w_in_NID, w_out_NDM, sizes, activation)
