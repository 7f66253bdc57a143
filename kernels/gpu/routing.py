"""Which experts each token goes to, and the tokens sorted by expert into blocks that hold one expert each.

Nothing is read back: how many blocks there will be is bounded from the sizes alone, and blocks beyond the last are
marked. Without atomics, so the order is the same in every run.
"""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

from typing import NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from .launch import jit, tile
from .linear import linear

_SCAN = 1024
"""Choices that one step of the sort looks at."""


class Blocks(NamedTuple):
    """Token–expert pairs sorted by expert. Pair t · K + k is token t's k-th choice."""

    pair_P: Tensor
    """Pair at each padded place (int32); T · K marks padding."""
    expert_Q: Tensor
    """Expert of each block (int32); −1 marks a block beyond the last."""
    rows: int
    """Places a block."""


@jit
def _top_k(
    logits, weights, experts, num_experts, TOP_K: tl.constexpr, N: tl.constexpr, RENORMALISE: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, N)
    logit = tl.load(logits + token * num_experts + n, mask=n < num_experts, other=-float("inf"))
    strength = tl.exp(logit - tl.max(logit, axis=0))
    total = tl.sum(strength, axis=0)
    left = tl.where(n < num_experts, strength, -1.0)
    chosen = tl.zeros([N], tl.float32)  # the choices, strongest first, stand in the first TOP_K places
    expert = tl.zeros([N], tl.int32)
    for choice in range(TOP_K):
        best = tl.argmax(left, axis=0)
        chosen = tl.where(n == choice, tl.max(left, axis=0), chosen)
        expert = tl.where(n == choice, best, expert)
        left = tl.where(n == best, -1.0, left)
    if RENORMALISE:
        total = tl.sum(chosen, axis=0)
    tl.store(weights + token * TOP_K + n, chosen / total, mask=n < TOP_K)
    tl.store(experts + token * TOP_K + n, expert, mask=n < TOP_K)


@jit
def _count(experts, counts, pairs, SCAN: tl.constexpr):
    expert = tl.program_id(0)
    step = tl.arange(0, SCAN)
    found = tl.zeros([SCAN], tl.int32)
    for start in range(0, pairs, SCAN):
        chosen = tl.load(experts + start + step, mask=start + step < pairs, other=-1)
        found += (chosen == expert).to(tl.int32)
    tl.store(counts + expert, tl.sum(found, axis=0))


@jit
def _place(
    experts, counts, pair_P, expert_Q, pairs, num_experts, num_blocks, ROWS: tl.constexpr, N: tl.constexpr, SCAN: tl.constexpr
):  # fmt: skip
    """One program an expert, and one more that marks the blocks beyond the last."""
    expert = tl.program_id(0)
    n = tl.arange(0, N)
    count = tl.load(counts + n, mask=n < num_experts, other=0)
    blocks = (count + ROWS - 1) // ROWS
    first = tl.sum(tl.where(n < expert, blocks, 0), axis=0)
    end = first + tl.sum(tl.where(n == expert, blocks, 0), axis=0)
    is_expert = expert < num_experts
    mark = tl.where(is_expert, expert, -1)
    step = tl.arange(0, SCAN)
    for start in range(first, tl.where(is_expert, end, num_blocks), SCAN):
        tl.store(expert_Q + start + step, mark, mask=start + step < tl.where(is_expert, end, num_blocks))
    place = first * ROWS
    for start in range(0, pairs, SCAN):
        chosen = tl.load(experts + start + step, mask=start + step < pairs, other=-1)
        mine = (chosen == expert).to(tl.int32)
        rank = tl.cumsum(mine, axis=0) - mine
        tl.store(pair_P + place + rank, start + step, mask=mine != 0)
        place += tl.sum(mine, axis=0)
    padding = place + tl.arange(0, ROWS)
    tl.store(pair_P + padding, pairs, mask=padding < end * ROWS)


def route(x_TD: Tensor, router_ND: Tensor, top_k: int, renormalise: bool) -> tuple[Tensor, Tensor]:
    """Weights (fp32) and ids (int32) of each token's experts, [T, K] each, the strongest first."""
    tokens, num_experts = x_TD.shape[0], router_ND.shape[0]
    logits_TN = linear(x_TD, router_ND, torch.float32)
    weights_TK = torch.empty(tokens, top_k, dtype=torch.float32, device=x_TD.device)
    experts_TK = torch.empty(tokens, top_k, dtype=torch.int32, device=x_TD.device)
    if tokens:
        _top_k[(tokens,)](
            logits_TN, weights_TK, experts_TK, num_experts,
            TOP_K=top_k, N=tile(num_experts), RENORMALISE=renormalise, num_warps=4,
        )  # fmt: skip
    return weights_TK, experts_TK


def sort_by_expert(experts_TK: Tensor, num_experts: int, rows: int) -> Blocks:
    """The pairs sorted by expert, each expert's padded to whole blocks of `rows`; a pair keeps its order within its expert."""
    pairs, device = experts_TK.numel(), experts_TK.device
    # An expert that is touched at all wastes at most rows − 1 places, and no more experts are touched than there are pairs.
    num_blocks = (pairs + min(num_experts, pairs) * (rows - 1)) // rows
    counts_N = torch.empty(num_experts, dtype=torch.int32, device=device)
    pair_P = torch.empty(num_blocks * rows, dtype=torch.int32, device=device)
    expert_Q = torch.empty(num_blocks, dtype=torch.int32, device=device)
    scan = tile(pairs, largest=_SCAN)
    _count[(num_experts,)](experts_TK, counts_N, pairs, SCAN=scan, num_warps=4)
    _place[(num_experts + 1,)](
        experts_TK, counts_N, pair_P, expert_Q, pairs, num_experts, num_blocks,
        ROWS=rows, N=tile(num_experts), SCAN=scan, num_warps=4,
    )  # fmt: skip
    return Blocks(pair_P, expert_Q, rows)
