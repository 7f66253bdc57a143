"""y = x wᵀ for a tall or short x: the router's logits and the latent projections."""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from .launch import cdiv, dot, jit, stages_that_fit, tile


@jit
def _linear(
    x, w, y, rows, columns, depth,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    d = tl.arange(0, DEPTH)
    x_at = x + row.to(tl.int64)[:, None] * depth + d[None, :]
    w_at = w + column.to(tl.int64)[None, :] * depth + d[:, None]
    row_ok, column_ok = row < rows, column < columns
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, depth, DEPTH):
        if EVEN:
            x_tile = tl.load(x_at, mask=row_ok[:, None], other=0.0)
            w_tile = tl.load(w_at, mask=column_ok[None, :], other=0.0)
        else:
            d_ok = d < depth - start
            x_tile = tl.load(x_at, mask=row_ok[:, None] & d_ok[None, :], other=0.0)
            w_tile = tl.load(w_at, mask=column_ok[None, :] & d_ok[:, None], other=0.0)
        acc = dot(x_tile, w_tile, acc)
        x_at += DEPTH
        w_at += DEPTH
    y_at = y + row.to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(y_at, acc.to(y.dtype.element_ty), mask=row_ok[:, None] & column_ok[None, :])


def linear(x_TD: Tensor, w_ND: Tensor, format: torch.dtype) -> Tensor:
    """x wᵀ, [T, N] in `format`, summed in fp32."""
    (tokens, depth), columns = x_TD.shape, w_ND.shape[0]
    y_TN = torch.empty(tokens, columns, dtype=format, device=x_TD.device)
    if y_TN.numel() == 0:
        return y_TN
    rows = tile(tokens, largest=128)
    # Few tokens: the weights are what is read, so narrow tiles spread them over many multiprocessors.
    wide = 16 if rows <= 32 else 64 if rows == 64 else 128
    deep = tile(depth, largest=(256 if rows <= 32 else 128) // x_TD.element_size())
    stage_bytes = (rows + wide) * deep * x_TD.element_size()
    _linear[(cdiv(columns, wide), cdiv(tokens, rows))](
        x_TD, w_ND, y_TN, tokens, columns, depth,
        ROWS=rows, COLUMNS=wide, DEPTH=deep, EVEN=depth % deep == 0,
        num_warps=8 if rows == 128 else 4, num_stages=stages_that_fit(x_TD, stage_bytes, 4 if rows <= 32 else 3),
    )  # fmt: skip
    return y_TN
