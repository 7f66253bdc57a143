"""Paged decode attention in Triton: the query heads of a KV head share its keys, long contexts are split over programs."""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..reference.decode_attention import decode_sizes
from .launch import LOG2_E, check_arrays, dot, jit, tile
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
def _decode(
    q, k_pages, v_pages, page_table, lengths, out, part_lse, scale, rows, table_width, window, splits,
    GROUP: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, WINDOWED: tl.constexpr,
    SPLIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    split, kv_head, sequence = tl.program_id(0), tl.program_id(1), tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + sequence).to(tl.int32)
    first = length * 0
    if WINDOWED:
        first = tl.maximum(length - window, 0)
    span = (length - first + splits - 1) // splits
    span = (span + KEYS - 1) // KEYS * KEYS
    start = first + split * span
    end = tl.minimum(start + span, length)
    head, d = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    head_ok, d_ok = head < GROUP, d < D
    row = (sequence * KV_HEADS + kv_head) * GROUP + head
    q_tile = tl.load(q + row[:, None] * D + d[None, :], mask=head_ok[:, None] & d_ok[None, :], other=0.0)
    acc = tl.zeros([ROWS, WIDTH], tl.float32)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for at in range(start, end, KEYS):
        t = at + tl.arange(0, KEYS)
        t_ok = t < end
        page = tl.load(page_table + sequence * table_width + t // PAGE, mask=t_ok, other=0).to(tl.int64)
        base = ((page * PAGE + t % PAGE) * KV_HEADS + kv_head) * D
        k_tile = tl.load(k_pages + base[None, :] + d[:, None], mask=t_ok[None, :] & d_ok[:, None], other=0.0)
        scores = dot(q_tile, k_tile, tl.zeros([ROWS, KEYS], tl.float32)) * scale
        scores = tl.where(t_ok[None, :], scores, -float("inf"))
        v_tile = tl.load(v_pages + base[:, None] + d[None, :], mask=t_ok[:, None] & d_ok[None, :], other=0.0)
        acc, peak, total = absorb(scores, v_tile, acc, peak, total)
    store_rows(out, part_lse, row, head_ok, split, rows, acc, peak, total, SPLIT, D, WIDTH)


def decode_attention(
    q_BHd: Tensor,
    k_pages_PGhd: Tensor,
    v_pages_PGhd: Tensor,
    page_table_BX: Tensor,
    lengths_B: Tensor,
    *,
    window: int | None = None,
) -> Tensor:
    """[B, H, d], as `kernels.reference.decode_attention`; that the pages exist is the caller's promise.

    Lengths stay on the device, so the work is cut by what the page table could hold. Raises `UsageError` as there.
    """
    sizes = decode_sizes(q_BHd, k_pages_PGhd, v_pages_PGhd, page_table_BX, lengths_B, window)
    check_arrays(
        same_format={"q_BHd": q_BHd, "k_pages_PGhd": k_pages_PGhd, "v_pages_PGhd": v_pages_PGhd},
        others={"page_table_BX": page_table_BX, "lengths_B": lengths_B},
    )
    out_BHd = torch.empty_like(q_BHd)
    if out_BHd.numel() == 0:
        return out_BHd
    page, table_width = k_pages_PGhd.shape[1], page_table_BX.shape[1]
    most_keys = min(page * table_width, window or page * table_width)
    splits = splits_for(sizes.batch * sizes.kv_heads, most_keys, q_BHd)
    _, keys = rows_and_keys(sizes.group, sizes.head_dim, q_BHd.element_size())
    part, part_lse = partial_results(out_BHd, splits)
    _decode[(splits, sizes.kv_heads, sizes.batch)](
        q_BHd, k_pages_PGhd, v_pages_PGhd, page_table_BX, lengths_B, part, part_lse,
        LOG2_E / sizes.head_dim**0.5, sizes.batch * sizes.heads, table_width, window or 0, splits,
        GROUP=sizes.group, KV_HEADS=sizes.kv_heads, D=sizes.head_dim, PAGE=page, WINDOWED=window is not None,
        SPLIT=splits > 1, ROWS=tile(sizes.group), WIDTH=tile(sizes.head_dim), KEYS=keys,
        num_warps=4, num_stages=attention_stages(q_BHd),
    )  # fmt: skip
    merge_splits(part, part_lse, out_BHd, splits)
    return out_BHd
