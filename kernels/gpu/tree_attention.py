"""Tree-verify attention in Triton: all draft nodes and query heads that share a KV head are rows of one tile."""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..reference.tree_attention import tree_sizes
from .launch import LOG2_E, cdiv, check_arrays, dot, jit, tile
from .online_softmax import (
    absorb,
    attention_stages,
    merge_splits,
    partial_results,
    rows_and_keys,
    splits_for,
    store_rows,
)


@jit
def _tree(
    q, k, v, lengths, tree_mask, k_tree, v_tree, out, part_lse, scale, rows, context, nodes, splits,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, SPLIT: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    split, sequence = tl.program_id(0), tl.program_id(2).to(tl.int64)
    kv_head, part = tl.program_id(1) % KV_HEADS, tl.program_id(1) // KV_HEADS
    length = tl.load(lengths + sequence).to(tl.int32)
    span = (length + splits - 1) // splits
    span = (span + KEYS - 1) // KEYS * KEYS
    start = split * span
    end = tl.minimum(start + span, length)
    m, d, key = part * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, KEYS)
    node = m // GROUP
    row_ok, d_ok = node < nodes, d < D
    row = ((sequence * nodes + node) * KV_HEADS + kv_head) * GROUP + m % GROUP
    q_tile = tl.load(q + row[:, None] * D + d[None, :], mask=row_ok[:, None] & d_ok[None, :], other=0.0)
    acc = tl.zeros([ROWS, WIDTH], tl.float32)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for at in range(start, end, KEYS):
        t = at + key
        t_ok = t < end
        base = ((sequence * context + t) * KV_HEADS + kv_head) * D
        k_tile = tl.load(k + base[None, :] + d[:, None], mask=t_ok[None, :] & d_ok[:, None], other=0.0)
        scores = dot(q_tile, k_tile, tl.zeros([ROWS, KEYS], tl.float32)) * scale
        scores = tl.where(t_ok[None, :], scores, -float("inf"))
        v_tile = tl.load(v + base[:, None] + d[None, :], mask=t_ok[:, None] & d_ok[None, :], other=0.0)
        acc, peak, total = absorb(scores, v_tile, acc, peak, total)
    for at in range(
        0, tl.where(split == 0, nodes, 0), KEYS
    ):  # the first split also takes the tree's own nodes
        j = at + key
        j_ok = j < nodes
        base = ((sequence * nodes + j) * KV_HEADS + kv_head) * D
        k_tile = tl.load(k_tree + base[None, :] + d[:, None], mask=j_ok[None, :] & d_ok[:, None], other=0.0)
        scores = dot(q_tile, k_tile, tl.zeros([ROWS, KEYS], tl.float32)) * scale
        sees = tl.load(
            tree_mask + node[:, None] * nodes + j[None, :], mask=row_ok[:, None] & j_ok[None, :], other=0
        )
        scores = tl.where(sees != 0, scores, -float("inf"))
        v_tile = tl.load(v_tree + base[:, None] + d[None, :], mask=j_ok[:, None] & d_ok[None, :], other=0.0)
        acc, peak, total = absorb(scores, v_tile, acc, peak, total)
    store_rows(out, part_lse, row, row_ok, split, rows, acc, peak, total, SPLIT, D, WIDTH)


def tree_attention(
    q_BJHd: Tensor,
    k_BChd: Tensor,
    v_BChd: Tensor,
    lengths_B: Tensor,
    tree_mask_JJ: Tensor,
    k_tree_BJhd: Tensor,
    v_tree_BJhd: Tensor,
) -> Tensor:
    """[B, J, H, d], as `kernels.reference.tree_attention`; that lengths are at most C is the caller's promise.

    Raises `UsageError` as there.
    """
    sizes = tree_sizes(q_BJHd, k_BChd, v_BChd, lengths_B, tree_mask_JJ, k_tree_BJhd, v_tree_BJhd)
    keys = {"k_BChd": k_BChd, "v_BChd": v_BChd, "k_tree_BJhd": k_tree_BJhd, "v_tree_BJhd": v_tree_BJhd}
    check_arrays(
        same_format={"q_BJHd": q_BJHd, **keys}, others={"lengths_B": lengths_B, "tree_mask_JJ": tree_mask_JJ}
    )
    out_BJHd = torch.empty_like(q_BJHd)
    if out_BJHd.numel() == 0:
        return out_BJHd
    all_rows = sizes.queries * sizes.group
    rows, tile_keys = rows_and_keys(all_rows, sizes.head_dim, q_BJHd.element_size(), most_rows=64)
    parts = cdiv(all_rows, rows)
    context = k_BChd.shape[1]
    splits = splits_for(sizes.batch * sizes.kv_heads * parts, context, q_BJHd)
    part, part_lse = partial_results(out_BJHd, splits)
    _tree[(splits, sizes.kv_heads * parts, sizes.batch)](
        q_BJHd, k_BChd, v_BChd, lengths_B, tree_mask_JJ.view(torch.uint8), k_tree_BJhd, v_tree_BJhd, part, part_lse,
        LOG2_E / sizes.head_dim**0.5, sizes.batch * sizes.queries * sizes.heads, context, sizes.queries, splits,
        GROUP=sizes.group, KV_HEADS=sizes.kv_heads, D=sizes.head_dim, SPLIT=splits > 1,
        ROWS=rows, WIDTH=tile(sizes.head_dim), KEYS=tile_keys, num_warps=4, num_stages=attention_stages(q_BJHd),
    )  # fmt: skip
    merge_splits(part, part_lse, out_BJHd, splits)
    return out_BJHd
