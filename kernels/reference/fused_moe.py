"""A mixture-of-experts layer: each token goes through its top-k experts, whose outputs are summed by weight."""

from __future__ import annotations

import torch
from torch import Tensor

from .shapes import Activation, moe_sizes


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
    """y_TD in the format of `x_TD`. Gated where I = 2M: then act(gate) · up goes into the second matrix.

    The router's softmax runs over all experts, then the top-k are taken (ties to the lower expert) and, with
    `renormalise`, their weights made to sum to 1. Raises `UsageError` where shapes do not fit.
    """
    moe_sizes(x_TD, router_ND, w_in_NID, w_out_NDM, top_k, activation)
    weights_TK, experts_TK = route(x_TD, router_ND, top_k, renormalise)
    return mix_experts(x_TD.double(), weights_TK, experts_TK, w_in_NID, w_out_NDM, activation).to(x_TD.dtype)


def route(x_TD: Tensor, router_ND: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """Weights (float64) and ids (int64) of each token's experts, [T, K] each, the strongest first."""
    probabilities_TN = torch.softmax(x_TD.double() @ router_ND.double().T, dim=-1)
    order_TN = torch.argsort(probabilities_TN, dim=-1, descending=True, stable=True)
    experts_TK = order_TN[:, :top_k]
    weights_TK = probabilities_TN.gather(1, experts_TK)
    if renormalise:
        weights_TK = weights_TK / weights_TK.sum(dim=-1, keepdim=True)
    return weights_TK, experts_TK


def mix_experts(
    x_TW: Tensor,
    weights_TK: Tensor,
    experts_TK: Tensor,
    w_in_NIW: Tensor,
    w_out_NWM: Tensor,
    activation: Activation,
) -> Tensor:
    """Σ over a token's experts of weight · expert(x), in float64, [T, W]."""
    y_TW = torch.zeros_like(x_TW)
    for expert in range(w_in_NIW.shape[0]):
        tokens, choices = torch.nonzero(experts_TK == expert, as_tuple=True)
        if len(tokens) == 0:
            continue
        hidden = x_TW[tokens] @ w_in_NIW[expert].double().T
        hidden = activate(hidden, w_out_NWM.shape[2], activation)
        y_TW[tokens] += weights_TK[tokens, choices, None] * (hidden @ w_out_NWM[expert].double().T)
    return y_TW


def activate(hidden: Tensor, width: int, activation: Activation) -> Tensor:
    """The activation of the first `width` columns, times the others where the expert is gated."""
    gate, up = hidden[:, :width], hidden[:, width:]
    gate = torch.nn.functional.silu(gate) if activation == "silu" else torch.relu(gate) ** 2
    return gate * up if up.shape[1] else gate
