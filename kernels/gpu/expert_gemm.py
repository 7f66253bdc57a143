"""Grouped GEMMs over tokens sorted by expert: into the experts, through the activation, out again, summed by weight."""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from ..reference.shapes import Activation, MoeSizes
from .launch import cdiv, dot, jit, stages_that_fit, tile
from .routing import sort_by_expert

_STAGE_BYTES = 2**15


class Tiles(NamedTuple):
    """How a grouped GEMM is cut: chosen by sizes, so that a stage takes 32 KiB of shared memory at most."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def tiles_for(rows: int, columns: int, depth: int, element_bytes: int) -> Tiles:
    """Few rows: bound by reading weights, so deep tiles and many in flight. Many rows: bound by the tensor cores."""
    deep = 256 // element_bytes if rows <= 32 else 128 // element_bytes
    return Tiles(
        rows=rows,
        columns=tile(columns, largest=64 if rows <= 64 else 128),
        depth=tile(depth, largest=deep),
        warps=8 if rows == 128 else 4,
        stages=4 if rows <= 32 else 3,
    )


@jit
def _into_experts(
    x, w_in, hidden, pair_P, expert_Q, pairs, width, depth,
    TOP_K: tl.constexpr, GATED: tl.constexpr, RELU2: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """hidden[pair] = act(x[token] · gate rows) (· x[token] · up rows), one block of one expert a program."""
    expert = tl.load(expert_Q + tl.program_id(1))
    if expert < 0:
        return
    pair = tl.load(pair_P + tl.program_id(1) * ROWS + tl.arange(0, ROWS))
    row_ok = pair < pairs
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    column_ok = column < width
    d = tl.arange(0, DEPTH)
    x_at = x + (pair // TOP_K).to(tl.int64)[:, None] * depth + d[None, :]
    w = w_in + expert.to(tl.int64) * (2 * width if GATED else width) * depth
    gate_at = w + column[None, :] * depth + d[:, None]
    up_at = gate_at + width * depth
    gate = tl.zeros([ROWS, COLUMNS], tl.float32)
    up = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, depth, DEPTH):
        x_ok, w_ok = row_ok[:, None], column_ok[None, :]
        if not EVEN:
            d_ok = d < depth - start
            x_ok, w_ok = x_ok & d_ok[None, :], w_ok & d_ok[:, None]
        x_tile = tl.load(x_at, mask=x_ok, other=0.0)
        gate = dot(x_tile, tl.load(gate_at, mask=w_ok, other=0.0), gate)
        if GATED:
            up = dot(x_tile, tl.load(up_at, mask=w_ok, other=0.0), up)
        x_at += DEPTH
        gate_at += DEPTH
        up_at += DEPTH
    if RELU2:
        gate = tl.maximum(gate, 0.0)
        gate = gate * gate
    else:
        gate = gate / (1.0 + tl.exp(-gate))
    if GATED:
        gate = gate * up
    hidden_at = hidden + pair.to(tl.int64)[:, None] * width + column[None, :]
    tl.store(hidden_at, gate.to(hidden.dtype.element_ty), mask=row_ok[:, None] & column_ok[None, :])


@jit
def _out_of_experts(
    hidden, w_out, weights, out, pair_P, expert_Q, pairs, columns, depth,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, EVEN: tl.constexpr,
):  # fmt: skip
    """out[pair] = weight[pair] · hidden[pair] w_outᵀ."""
    expert = tl.load(expert_Q + tl.program_id(1))
    if expert < 0:
        return
    pair = tl.load(pair_P + tl.program_id(1) * ROWS + tl.arange(0, ROWS))
    row_ok = pair < pairs
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    column_ok = column < columns
    d = tl.arange(0, DEPTH)
    h_at = hidden + pair.to(tl.int64)[:, None] * depth + d[None, :]
    w_at = w_out + expert.to(tl.int64) * columns * depth + column[None, :] * depth + d[:, None]
    acc = tl.zeros([ROWS, COLUMNS], tl.float32)
    for start in range(0, depth, DEPTH):
        h_ok, w_ok = row_ok[:, None], column_ok[None, :]
        if not EVEN:
            d_ok = d < depth - start
            h_ok, w_ok = h_ok & d_ok[None, :], w_ok & d_ok[:, None]
        acc = dot(tl.load(h_at, mask=h_ok, other=0.0), tl.load(w_at, mask=w_ok, other=0.0), acc)
        h_at += DEPTH
        w_at += DEPTH
    acc = acc * tl.load(weights + pair, mask=row_ok, other=0.0)[:, None]
    out_at = out + pair.to(tl.int64)[:, None] * columns + column[None, :]
    tl.store(out_at, acc.to(out.dtype.element_ty), mask=row_ok[:, None] & column_ok[None, :])


@jit
def _combine(out, y, columns, TOP_K: tl.constexpr, COLUMNS: tl.constexpr):
    token = tl.program_id(1).to(tl.int64)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    ok = column < columns
    acc = tl.zeros([COLUMNS], tl.float32)
    for choice in range(TOP_K):
        acc += tl.load(out + (token * TOP_K + choice) * columns + column, mask=ok, other=0.0).to(tl.float32)
    tl.store(y + token * columns + column, acc.to(y.dtype.element_ty), mask=ok)


def mix_experts(
    x_TW: Tensor, weights_TK: Tensor, experts_TK: Tensor, w_in_NIW: Tensor, w_out_NWM: Tensor,
    sizes: MoeSizes, activation: Activation,
) -> Tensor:  # fmt: skip
    """Σ over a token's experts of weight · expert(x), [T, W].

    Sums run in fp32; between the two matrices, and per expert before the sum, values stand in the format of `x_TW`.
    """
    y_TW = torch.empty_like(x_TW)
    pairs = experts_TK.numel()
    if pairs == 0:
        return y_TW
    rows = tile(cdiv(pairs, sizes.num_experts), largest=128)
    blocks = sort_by_expert(experts_TK, sizes.num_experts, rows)
    num_blocks = len(blocks.expert_Q)
    hidden_PM = torch.empty(pairs, sizes.width, dtype=x_TW.dtype, device=x_TW.device)
    into = tiles_for(rows, sizes.width, sizes.width_in, x_TW.element_size())
    if sizes.gated:  # two weight tiles a program
        into = into._replace(columns=max(16, into.columns // 2))
    _into_experts[(cdiv(sizes.width, into.columns), num_blocks)](
        x_TW, w_in_NIW, hidden_PM, blocks.pair_P, blocks.expert_Q, pairs, sizes.width, sizes.width_in,
        TOP_K=sizes.top_k, GATED=sizes.gated, RELU2=activation == "relu2",
        ROWS=rows, COLUMNS=into.columns, DEPTH=into.depth, EVEN=sizes.width_in % into.depth == 0,
        num_warps=into.warps, num_stages=stages_that_fit(x_TW, _STAGE_BYTES, into.stages),
    )  # fmt: skip
    out_PW = torch.empty(pairs, sizes.width_in, dtype=x_TW.dtype, device=x_TW.device)
    out_of = tiles_for(rows, sizes.width_in, sizes.width, x_TW.element_size())
    _out_of_experts[(cdiv(sizes.width_in, out_of.columns), num_blocks)](
        hidden_PM, w_out_NWM, weights_TK, out_PW, blocks.pair_P, blocks.expert_Q, pairs, sizes.width_in, sizes.width,
        ROWS=rows, COLUMNS=out_of.columns, DEPTH=out_of.depth, EVEN=sizes.width % out_of.depth == 0,
        num_warps=out_of.warps, num_stages=stages_that_fit(x_TW, _STAGE_BYTES, out_of.stages),
    )  # fmt: skip
    across = tile(sizes.width_in, largest=1024)
    _combine[(cdiv(sizes.width_in, across), sizes.tokens)](
        out_PW, y_TW, sizes.width_in, TOP_K=sizes.top_k, COLUMNS=across, num_warps=4
    )
    return y_TW
