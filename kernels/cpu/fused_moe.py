"""A mixture-of-experts layer on the processor: experts with few tokens read in place, those with many as products.

The weights are never copied: gathering them for one batched product would triple the bytes moved, and bytes are what
decoding costs. Tokens are sorted by expert once; each expert then takes the way that is faster for its share.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..reference.shapes import Activation, moe_sizes
from .combine import add_weighted_rows
from .compiled import plain
from .gemm import wide_product
from .router_top_k import Order, by_expert, router_top_k
from .rows import experts_in, experts_out

FEW_TOKENS = {torch.bfloat16: (6, 2), torch.float32: (8, 8)}
"""Tokens of one expert up to which reading its weights in place is the faster way, for small and for large experts.

Measured on 2 cores with AVX-512, bf16 products native: a library's product costs some 25 µs to start, which only small
experts feel, and packs weights at 8 GB/s, which few tokens feel.
"""
_LARGE_EXPERT_BYTES = 2**22


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
    """y_TD in the format of `x_TD`; meaning and errors as `kernels.reference.fused_moe`."""
    moe_sizes(x_TD, router_ND, w_in_NID, w_out_NDM, top_k, activation)
    with torch.inference_mode():
        logits_TN = wide_product(x_TD, router_ND)
        order = by_expert(*router_top_k(logits_TN, top_k=top_k, renormalise=renormalise), router_ND.shape[0])
        return mix_experts(x_TD, order, w_in_NID, w_out_NDM, activation).to(x_TD.dtype)


def mix_experts(
    x_TW: Tensor, order: Order, w_in_NIW: Tensor, w_out_NWM: Tensor, activation: Activation
) -> Tensor:
    """Σ over a token's experts of weight · expert(x), [T, W] in fp32."""
    y_TW = np.zeros(x_TW.shape, np.float32)
    one_bytes = (w_in_NIW[0].numel() + w_out_NWM[0].numel()) * w_in_NIW.element_size()
    few_tokens = FEW_TOKENS.get(w_in_NIW.dtype, (0, 0))[one_bytes > _LARGE_EXPERT_BYTES]
    is_few = order.ends_S - order.starts_S <= few_tokens
    if is_few.any():
        few = order.among(is_few) if not is_few.all() else order
        x_fp32, width = x_TW.float().contiguous().numpy(), w_out_NWM.shape[2]
        hidden_PM = np.empty((len(few.tokens_P), width), np.float32)
        silu = activation == "silu"
        experts_in(x_fp32, plain(w_in_NIW), *few[:5], width, silu, hidden_PM)
        experts_out(hidden_PM, plain(w_out_NWM), *few[:4], y_TW)
    if not is_few.all():
        many = order.among(~is_few)
        rows_PW = _products(x_TW, many, w_in_NIW, w_out_NWM, activation)
        is_there_P = np.repeat(~is_few, order.ends_S - order.starts_S)
        add_weighted_rows(plain(rows_PW), is_there_P, many.weights_P, many.places_TK, y_TW)
    return torch.from_numpy(y_TW)


def _products(
    x_TW: Tensor, order: Order, w_in_NIW: Tensor, w_out_NWM: Tensor, activation: Activation
) -> Tensor:
    """Each expert's output for its tokens, [P, W]; rows of experts that are not in `order` are left as they were made."""
    width = w_out_NWM.shape[2]
    sorted_PW = x_TW.index_select(0, torch.from_numpy(order.tokens_P))
    out_PW = torch.empty_like(sorted_PW)
    segments = list(
        zip(order.experts_S.tolist(), order.starts_S.tolist(), order.ends_S.tolist(), strict=True)
    )
    for expert, start, end in segments:
        hidden = torch.mm(
            sorted_PW[start:end], w_in_NIW[expert].T
        )  # small, so the allocator hands out warm memory
        gate = hidden[:, :width]
        gate = torch.nn.functional.silu(gate) if activation == "silu" else torch.relu(gate).square_()
        if hidden.shape[1] > width:
            gate *= hidden[:, width:]
        torch.mm(gate, w_out_NWM[expert].T, out=out_PW[start:end])
    return out_PW
