"""A latent mixture-of-experts layer on the processor: down once a token, experts in the latent width, up once."""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference.shapes import Activation, latent_width, moe_sizes
from .fused_moe import mix_experts
from .gemm import product, wide_product
from .router_top_k import by_expert, router_top_k


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
    """y_TD in the format of `x_TD`; meaning and errors as `kernels.reference.latent_moe`."""
    latent = latent_width(x_TD, down_LD, up_DL)
    moe_sizes(x_TD, router_ND, w_in_NIL, w_out_NLM, top_k, activation, width_in=latent)
    with torch.inference_mode():
        logits_TN = wide_product(x_TD, router_ND)
        order = by_expert(*router_top_k(logits_TN, top_k=top_k, renormalise=renormalise), router_ND.shape[0])
        mixed_TL = mix_experts(product(x_TD, down_LD), order, w_in_NIL, w_out_NLM, activation)
        return product(mixed_TL.to(x_TD.dtype), up_DL)
