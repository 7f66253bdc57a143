"""A latent mixture-of-experts layer (LatentMoE, arXiv 2601.18089): experts work in a narrower width than the router."""

from __future__ import annotations

from torch import Tensor

from .fused_moe import mix_experts, route
from .shapes import Activation, latent_width, moe_sizes


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
    """y_TD: the router sees `x_TD`, the experts its projection to L; their weighted sum is projected back once.

    Raises `UsageError` where shapes do not fit.
    """
    latent = latent_width(x_TD, down_LD, up_DL)
    moe_sizes(x_TD, router_ND, w_in_NIL, w_out_NLM, top_k, activation, width_in=latent)
    weights_TK, experts_TK = route(x_TD, router_ND, top_k, renormalise)
    narrow_TL = x_TD.double() @ down_LD.double().T
    mixed_TL = mix_experts(narrow_TL, weights_TK, experts_TK, w_in_NIL, w_out_NLM, activation)
    return (mixed_TL @ up_DL.double().T).to(x_TD.dtype)
