"""A latent mixture-of-experts layer in Triton: the routed path of `fused_moe` between two projections."""

from __future__ import annotations

from torch import Tensor

from ..reference.shapes import Activation, latent_width, moe_sizes
from .expert_gemm import mix_experts
from .launch import check_arrays
from .linear import linear
from .routing import route


def latent_moe(
    x_TD: Tensor,
    router_ND: Tensor,
    down_LD: Tensor,
    w_in_NIL: Tensor,
    w_out_NLM: Tensor,
    up_DL: Tensor,
    *,
    top_k: int,
    activation: Activation,
    renormalise: bool = True,
) -> Tensor:
    """y_TD, as `kernels.reference.latent_moe`; the latent activations stand in the format of `x_TD`.

    Raises `UsageError` as there.
    """
    latent = latent_width(x_TD, down_LD, up_DL)
    sizes = moe_sizes(x_TD, router_ND, w_in_NIL, w_out_NLM, top_k, activation, width_in=latent)
    weights = {"down_LD": down_LD, "w_in_NIL": w_in_NIL, "w_out_NLM": w_out_NLM, "up_DL": up_DL}
    check_arrays(same_format={"x_TD": x_TD, "router_ND": router_ND, **weights})
    weights_TK, experts_TK = route(x_TD, router_ND, top_k, renormalise)
    narrow_TL = linear(x_TD, down_LD, x_TD.dtype)
    mixed_TL = mix_experts(narrow_TL, weights_TK, experts_TK, w_in_NIL, w_out_NLM, sizes, activation)
    return linear(mixed_TL, up_DL, x_TD.dtype)
