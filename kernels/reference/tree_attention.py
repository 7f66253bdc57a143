"""Attention that verifies a tree of drafts: each node sees the context, its ancestors and itself."""

from __future__ import annotations

import torch
from torch import Tensor

from .decode_attention import attend
from .shapes import AttentionSizes, attention_sizes, dimensions, expects


def tree_attention(
    q_BJHd: Tensor,
    k_BChd: Tensor,
    v_BChd: Tensor,
    lengths_B: Tensor,
    tree_mask_JJ: Tensor,
    k_tree_BJhd: Tensor,
    v_tree_BJhd: Tensor,
) -> Tensor:
    """[B, J, H, d]: node i of sequence b attends to the first `lengths_B[b]` of C tokens and to nodes j with mask[i, j].

    `tree_mask_JJ` is boolean and true on its diagonal; the same tree serves the whole batch. Raises `UsageError` where
    shapes do not fit.
    """
    sizes = tree_sizes(q_BJHd, k_BChd, v_BChd, lengths_B, tree_mask_JJ, k_tree_BJhd, v_tree_BJhd)
    out_BJHd = torch.empty_like(q_BJHd)
    for b in range(sizes.batch):
        length = int(lengths_B[b])
        k = torch.cat([k_BChd[b, :length], k_tree_BJhd[b]])
        v = torch.cat([v_BChd[b, :length], v_tree_BJhd[b]])
        sees_context = torch.ones(sizes.queries, length, dtype=torch.bool, device=q_BJHd.device)
        out_BJHd[b] = attend(q_BJHd[b], k, v, torch.cat([sees_context, tree_mask_JJ], dim=1))
    return out_BJHd


def tree_sizes(
    q_BJHd: Tensor,
    k_BChd: Tensor,
    v_BChd: Tensor,
    lengths_B: Tensor,
    tree_mask_JJ: Tensor,
    k_tree_BJhd: Tensor,
    v_tree_BJhd: Tensor,
) -> AttentionSizes:
    """Sizes of a call; raises `UsageError` where shapes do not fit."""
    batch, context, kv_heads, head_dim = dimensions("k_BChd", k_BChd, 4)
    sizes = attention_sizes(q_BJHd, kv_heads, head_dim)
    expects("k_BChd", k_BChd, batch == sizes.batch, f"[{sizes.batch}, C, h, d]")
    expects(
        "v_BChd", v_BChd, v_BChd.shape == k_BChd.shape, f"{[batch, context, kv_heads, head_dim]} as the keys"
    )
    drafts = [batch, sizes.queries, kv_heads, head_dim]
    for name, array in (("k_tree_BJhd", k_tree_BJhd), ("v_tree_BJhd", v_tree_BJhd)):
        expects(name, array, list(array.shape) == drafts, str(drafts))
    expects("lengths_B", lengths_B, tuple(lengths_B.shape) == (batch,), f"[{batch}]")
    square = [sizes.queries, sizes.queries]
    expects(
        "tree_mask_JJ", tree_mask_JJ, list(tree_mask_JJ.shape) == square and tree_mask_JJ.dtype == torch.bool,
        f"{square}, boolean",
    )  # fmt: skip
    return sizes
