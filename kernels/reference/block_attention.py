"""Attention of a denoising pass of block diffusion: full inside a block, causal over earlier blocks."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import UsageError
from .decode_attention import attend
from .shapes import AttentionSizes, attention_sizes, dimensions, expects


def block_attention(q_BTHd: Tensor, k_BThd: Tensor, v_BThd: Tensor, *, block: int) -> Tensor:
    """[B, T, H, d]: position t attends to every position s with s // block ≤ t // block.

    The last block may be shorter. Raises `UsageError` where shapes do not fit.
    """
    sizes = block_sizes(q_BTHd, k_BThd, v_BThd, block)
    number_T = torch.arange(sizes.queries, device=q_BTHd.device) // block
    allowed_TT = number_T[None, :] <= number_T[:, None]
    out_BTHd = torch.empty_like(q_BTHd)
    for b in range(sizes.batch):
        out_BTHd[b] = attend(q_BTHd[b], k_BThd[b], v_BThd[b], allowed_TT)
    return out_BTHd


def block_sizes(q_BTHd: Tensor, k_BThd: Tensor, v_BThd: Tensor, block: int) -> AttentionSizes:
    """Sizes of a call; raises `UsageError` where shapes do not fit."""
    batch, tokens, kv_heads, head_dim = dimensions("k_BThd", k_BThd, 4)
    sizes = attention_sizes(q_BTHd, kv_heads, head_dim)
    expects(
        "k_BThd",
        k_BThd,
        (batch, tokens) == (sizes.batch, sizes.queries),
        f"[{sizes.batch}, {sizes.queries}, h, d]",
    )
    expects("v_BThd", v_BThd, v_BThd.shape == k_BThd.shape, f"{list(k_BThd.shape)} as the keys")
    if block < 1:
        raise UsageError(f"block must be at least 1 token, got {block}")
    return sizes
