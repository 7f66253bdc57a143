"""Softmax over keys that arrive tile by tile, or in splits that other programs hold, without ever storing the scores.

A running state per query row: `acc` (Σ p v), `peak` (largest score so far, −∞ before any) and `total` (Σ p). Scores are in
units of log₂, so that exponentials are the device's exp2.
"""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from .launch import cdiv, dot, jit, multiprocessors, stages_that_fit, tile

_KEYS_A_SPLIT = 128
"""Keys below which one more split costs more (its partial result, the merge) than it brings."""


@jit
def absorb(scores, v_tile, acc, peak, total):
    """The state after one more tile of keys; masked scores are −∞, and a row may see no key at all."""
    higher = tl.maximum(peak, tl.max(scores, axis=1))
    shift = tl.where(higher == -float("inf"), 0.0, higher)  # −∞ − −∞ would be NaN
    p = tl.exp2(scores - shift[:, None])
    fade = tl.exp2(peak - shift)
    acc = dot(p.to(v_tile.dtype), v_tile, acc * fade[:, None])
    return acc, higher, total * fade + tl.sum(p, axis=1)


@jit
def store_rows(
    out,
    part_lse,
    row,
    row_ok,
    split,
    rows,
    acc,
    peak,
    total,
    SPLIT: tl.constexpr,
    D: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Σ p v / Σ p at [split, row]; of a split also log₂ Σ 2^score. A row that saw no key is zeros, −∞."""
    d = tl.arange(0, WIDTH)
    some = tl.where(total > 0.0, total, 1.0)
    place = split.to(tl.int64) * rows + row
    values = (acc / some[:, None]).to(out.dtype.element_ty)
    tl.store(out + place[:, None] * D + d[None, :], values, mask=row_ok[:, None] & (d < D)[None, :])
    if SPLIT:
        tl.store(part_lse + place, peak + tl.log2(some), mask=row_ok)


@jit
def _merge(part, part_lse, out, rows, splits, D: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    s, d = tl.arange(0, SPLITS), tl.arange(0, WIDTH)
    ok = s < splits
    lse = tl.load(part_lse + s * rows + row, mask=ok, other=-float("inf"))
    peak = tl.max(lse, axis=0)
    weight = tl.exp2(lse - tl.where(peak == -float("inf"), 0.0, peak))
    total = tl.sum(weight, axis=0)
    at = part + (s.to(tl.int64)[:, None] * rows + row) * D + d[None, :]
    values = tl.load(at, mask=ok[:, None] & (d < D)[None, :], other=0.0)
    merged = tl.sum(values * weight[:, None], axis=0) / tl.where(total > 0.0, total, 1.0)
    tl.store(out + row * D + d, merged.to(out.dtype.element_ty), mask=d < D)


def splits_for(programs: int, keys: int, array: Tensor) -> int:
    """How many programs share one row's keys: enough for two waves of the device, none with too few keys."""
    return max(1, min(cdiv(2 * multiprocessors(array), programs), cdiv(keys, _KEYS_A_SPLIT)))


def partial_results(out: Tensor, splits: int) -> tuple[Tensor, Tensor]:
    """Where a launch with `splits` writes: partial results and their log-sums in fp32, or `out` itself without splits."""
    if splits == 1:
        return out, out
    rows = out.numel() // out.shape[-1]
    part = torch.empty(splits, rows, out.shape[-1], dtype=torch.float32, device=out.device)
    return part, torch.empty(splits, rows, dtype=torch.float32, device=out.device)


def merge_splits(part: Tensor, part_lse: Tensor, out: Tensor, splits: int) -> None:
    """The whole softmax's result from its splits', into `out`. Nothing to do without splits."""
    if splits == 1:
        return
    rows, head_dim = out.numel() // out.shape[-1], out.shape[-1]
    _merge[(rows,)](
        part,
        part_lse,
        out,
        rows,
        splits,
        D=head_dim,
        WIDTH=tile(head_dim),
        SPLITS=tile(splits, smallest=2),
        num_warps=4,
    )


def attention_stages(array: Tensor) -> int:
    """Two stages of keys and values in flight, one where shared memory is short: 32 KiB each, and half the queries' 32."""
    return stages_that_fit(array, 48 * 1024, most=2)


def rows_and_keys(rows: int, head_dim: int, element_bytes: int, most_rows: int = 128) -> tuple[int, int]:
    """Query rows and keys of a tile: 32 KiB of queries, 32 KiB of keys and values a stage, so that two stages fit some 100."""
    row_bytes = tile(head_dim) * element_bytes
    return tile(rows, largest=min(most_rows, max(16, 2**15 // row_bytes))), max(
        16, min(64, 2**14 // row_bytes)
    )
