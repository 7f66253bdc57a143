"""Block-denoise attention in Triton: keys that every row of a tile sees need no mask, the few others are masked."""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..reference.block_attention import block_sizes
from .launch import LOG2_E, cdiv, check_arrays, dot, jit, tile
from .online_softmax import absorb, attention_stages, rows_and_keys, store_rows


@jit
def _keys(
    q_tile, k, v, base, row_stride, t, first, end, tokens, block, scale, acc, peak, total,
    MASKED: tl.constexpr, D: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    d = tl.arange(0, WIDTH)
    for at in range(first, end, KEYS):
        s = at + tl.arange(0, KEYS)
        s_ok = s < tokens
        place = base + s.to(tl.int64) * row_stride
        k_tile = tl.load(k + place[None, :] + d[:, None], mask=s_ok[None, :] & (d < D)[:, None], other=0.0)
        scores = dot(q_tile, k_tile, tl.zeros([ROWS, KEYS], tl.float32)) * scale
        if MASKED:
            sees = (s // block)[None, :] <= (t // block)[:, None]
            scores = tl.where(sees & s_ok[None, :], scores, -float("inf"))
        v_tile = tl.load(v + place[:, None] + d[None, :], mask=s_ok[:, None] & (d < D)[None, :], other=0.0)
        acc, peak, total = absorb(scores, v_tile, acc, peak, total)
    return acc, peak, total


@jit
def _block(
    q, k, v, out, tokens, block, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    ROWS: tl.constexpr, WIDTH: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    # The last rows see the most keys, so they start first.
    start = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS
    head, sequence = tl.program_id(1), tl.program_id(2).to(tl.int64)
    t, d = start + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    t_ok = t < tokens
    row = (sequence * tokens + t) * HEADS + head
    q_tile = tl.load(q + row[:, None] * D + d[None, :], mask=t_ok[:, None] & (d < D)[None, :], other=0.0)
    acc = tl.zeros([ROWS, WIDTH], tl.float32)
    peak = tl.full([ROWS], -float("inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    last = tl.minimum(start + ROWS, tokens) - 1
    seen_by_all = tl.minimum((start // block + 1) * block, tokens) // KEYS * KEYS
    seen_by_any = tl.minimum((last // block + 1) * block, tokens)
    base = (sequence * tokens * KV_HEADS + head // (HEADS // KV_HEADS)) * D
    acc, peak, total = _keys(
        q_tile, k, v, base, KV_HEADS * D, t, 0, seen_by_all, tokens, block, scale, acc, peak, total,
        False, D, ROWS, WIDTH, KEYS,
    )  # fmt: skip
    acc, peak, total = _keys(
        q_tile, k, v, base, KV_HEADS * D, t, seen_by_all, seen_by_any, tokens, block, scale, acc, peak, total,
        True, D, ROWS, WIDTH, KEYS,
    )  # fmt: skip
    store_rows(out, out, row, t_ok, head * 0, 0, acc, peak, total, False, D, WIDTH)


def block_attention(q_BTHd: Tensor, k_BThd: Tensor, v_BThd: Tensor, *, block: int) -> Tensor:
    """[B, T, H, d], as `kernels.reference.block_attention`. Raises `UsageError` as there."""
    sizes = block_sizes(q_BTHd, k_BThd, v_BThd, block)
    check_arrays(same_format={"q_BTHd": q_BTHd, "k_BThd": k_BThd, "v_BThd": v_BThd})
    out_BTHd = torch.empty_like(q_BTHd)
    if out_BTHd.numel() == 0:
        return out_BTHd
    rows, keys = rows_and_keys(sizes.queries, sizes.head_dim, q_BTHd.element_size())
    _block[(cdiv(sizes.queries, rows), sizes.heads, sizes.batch)](
        q_BTHd, k_BThd, v_BThd, out_BTHd, sizes.queries, block, LOG2_E / sizes.head_dim**0.5,
        HEADS=sizes.heads, KV_HEADS=sizes.kv_heads, D=sizes.head_dim,
        ROWS=rows, WIDTH=tile(sizes.head_dim), KEYS=keys,
        num_warps=8 if rows == 128 else 4, num_stages=attention_stages(q_BTHd),
    )  # fmt: skip
    return out_BTHd
