"""Attention of a denoising pass of block diffusion on the processor: each block over itself and the blocks before it."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..reference.block_attention import block_sizes


def block_attention(q_BTHd: Tensor, k_BThd: Tensor, v_BThd: Tensor, *, block: int) -> Tensor:
    """[B, T, H, d]; meaning and errors as `kernels.reference.block_attention`."""
    sizes = block_sizes(q_BTHd, k_BThd, v_BThd, block)
    q, k, v = (array.transpose(1, 2) for array in (q_BTHd, k_BThd, v_BThd))
    out_BTHd = torch.empty_like(q_BTHd)
    with torch.inference_mode():
        for start in range(0, sizes.queries, block):
            stop = min(start + block, sizes.queries)
            part = scaled_dot_product_attention(
                q[:, :, start:stop], k[:, :, :stop], v[:, :, :stop], enable_gqa=sizes.group > 1
            )
            out_BTHd[:, start:stop] = part.transpose(1, 2)
    return out_BTHd
