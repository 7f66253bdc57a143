"""Attention of a speculative draft tree on the processor: torch's attention with the tree, and what is padding, as a mask."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ..reference.tree_attention import tree_sizes


def tree_attention(
    q_BJHd: Tensor,
    k_BChd: Tensor,
    v_BChd: Tensor,
    lengths_B: Tensor,
    tree_mask_JJ: Tensor,
    k_tree_BJhd: Tensor,
    v_tree_BJhd: Tensor,
) -> Tensor:
    """[B, J, H, d]; meaning and errors as `kernels.reference.tree_attention`."""
    sizes = tree_sizes(q_BJHd, k_BChd, v_BChd, lengths_B, tree_mask_JJ, k_tree_BJhd, v_tree_BJhd)
    with torch.inference_mode():
        longest = int(lengths_B.max()) if sizes.batch else 0
        keys, values = (
            torch.cat([cached[:, :longest], drafts], dim=1).transpose(1, 2)
            for cached, drafts in ((k_BChd, k_tree_BJhd), (v_BChd, v_tree_BJhd))
        )
        is_cached_BC = torch.arange(longest)[None, :] < lengths_B[:, None]
        seen_BJC = is_cached_BC[:, None, :].expand(sizes.batch, sizes.queries, longest)
        seen_BJX = torch.cat([seen_BJC, tree_mask_JJ.expand(sizes.batch, -1, -1)], dim=2)
        y = scaled_dot_product_attention(
            q_BJHd.transpose(1, 2), keys, values, attn_mask=seen_BJX[:, None], enable_gqa=sizes.group > 1
        )
        return y.transpose(1, 2).contiguous()
