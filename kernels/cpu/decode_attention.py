"""Attention of one new token a sequence over its paged KV cache, the pages read in place.

torch has no paged attention for processors; gathering the pages first would move every byte three times. A sequence's
context is cut into pieces, so that one long sequence still keeps all threads busy; the pieces' sums are joined at the end.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from ..reference.decode_attention import decode_sizes
from .compiled import exponential, inlined, load, parallel, plain
from .rows import dot_1, dots_2_4

Array = Any
_SHORTEST_PIECE = 256  # tokens; joining two pieces costs less than a hundredth of reading one
_TASKS_A_THREAD = 4  # pieces differ in length, so a few more tasks than threads even them out
_TILE = 32  # tokens a step: keys and values of 128 take 16 KiB each as fp32, half of the first cache together with the rest


def decode_attention(
    q_BHd: Tensor,
    k_pages_PGhd: Tensor,
    v_pages_PGhd: Tensor,
    page_table_BX: Tensor,
    lengths_B: Tensor,
    *,
    window: int | None = None,
) -> Tensor:
    """[B, H, d] in the format of q; meaning and errors as `kernels.reference.decode_attention`."""
    sizes = decode_sizes(q_BHd, k_pages_PGhd, v_pages_PGhd, page_table_BX, lengths_B, window)
    with torch.inference_mode():
        lengths = lengths_B.to(torch.int64).contiguous().numpy()
        longest = int(lengths.max(initial=0))
        if window is not None:
            longest = min(longest, window)
        wanted = -(-_TASKS_A_THREAD * numba.get_num_threads() // (sizes.batch * sizes.kv_heads))
        pieces = max(1, min(wanted, -(-longest // _SHORTEST_PIECE)))
        q_BHd32 = (q_BHd.float() / sizes.head_dim**0.5).contiguous().numpy()
        sums = np.zeros((sizes.batch, sizes.heads, pieces, sizes.head_dim), np.float32)
        highest = np.full((sizes.batch, sizes.heads, pieces), -np.inf, np.float32)
        totals = np.zeros((sizes.batch, sizes.heads, pieces), np.float32)
        table = page_table_BX.to(torch.int64).contiguous().numpy()
        _pieces(
            q_BHd32,
            plain(k_pages_PGhd),
            plain(v_pages_PGhd),
            table,
            lengths,
            window or 0,
            sums,
            highest,
            totals,
        )
        return torch.from_numpy(_joined(sums, highest, totals)).to(q_BHd.dtype)


def _joined(sums: Array, highest: Array, totals: Array) -> Array:
    """Softmax over all pieces from each piece's own maximum, sum of exponentials and weighted sum."""
    top = highest.max(axis=-1, keepdims=True)
    scale = np.exp(highest - np.where(np.isfinite(top), top, 0.0))
    total = (totals * scale).sum(axis=-1)
    y = (sums * scale[..., None]).sum(axis=2)
    return (y / np.where(total > 0, total, 1.0)[..., None]).astype(np.float32)


@inlined
def _widen(pages_PGhd: Array, page: int, first: int, h: int, count: int, tile_td: Array, done: int) -> None:
    """Keys or values of consecutive tokens of a page as fp32: they are used once per query head of the group."""
    for t in range(count):
        row = pages_PGhd[page, first + t, h]  # whole indices keep it contiguous for the compiler
        to = tile_td[done + t]
        for i in range(to.shape[0]):
            to[i] = load(row[i])


@inlined
def _scores(q_BHd: Array, b: int, head: int, tile_td: Array, count: int, scores_gt: Array) -> None:
    """q · k of a group's heads and a tile's tokens, four heads and two tokens at a time."""
    group = scores_gt.shape[0]
    for t in range(0, count, 2):
        other = min(t + 1, count - 1)
        one, two = tile_td[t], tile_td[other]
        g = 0
        while g + 4 <= group:
            values = dots_2_4(
                one,
                two,
                q_BHd[b, head + g],
                q_BHd[b, head + g + 1],
                q_BHd[b, head + g + 2],
                q_BHd[b, head + g + 3],
            )
            for j in range(4):
                scores_gt[g + j, t], scores_gt[g + j, other] = values[j], values[4 + j]
            g += 4
        while g < group:
            query = q_BHd[b, head + g]
            scores_gt[g, t], scores_gt[g, other] = dot_1(one, query), dot_1(two, query)
            g += 1


@inlined
def _add_values(weights_t: Array, tile_td: Array, count: int, out_d: Array) -> None:
    """out += Σ over the tile's tokens of weight · value, four tokens at a time."""
    t = 0
    while t + 4 <= count:
        w0, w1, w2, w3 = weights_t[t], weights_t[t + 1], weights_t[t + 2], weights_t[t + 3]
        a, b, c, d = tile_td[t], tile_td[t + 1], tile_td[t + 2], tile_td[t + 3]
        for i in range(out_d.shape[0]):
            out_d[i] += w0 * a[i] + w1 * b[i] + w2 * c[i] + w3 * d[i]
        t += 4
    while t < count:
        row, weight = tile_td[t], weights_t[t]
        for i in range(out_d.shape[0]):
            out_d[i] += weight * row[i]
        t += 1


@parallel
def _pieces(
    q_BHd: Array, k_PGhd: Array, v_PGhd: Array, table_BX: Array, lengths_B: Array, window: int,
    sums_BHSd: Array, highest_BHS: Array, totals_BHS: Array,
) -> None:  # fmt: skip
    batch, heads, pieces, dim = sums_BHSd.shape
    page, kv_heads = k_PGhd.shape[1], k_PGhd.shape[2]
    group = heads // kv_heads
    for task in numba.prange(batch * kv_heads * pieces):
        piece, rest = task % pieces, task // pieces
        h, b = rest % kv_heads, rest // kv_heads
        begin = max(0, lengths_B[b] - window) if window > 0 else 0
        length = lengths_B[b] - begin
        start, last = begin + length * piece // pieces, begin + length * (piece + 1) // pieces
        scores = np.empty((group, _TILE), np.float32)
        keys, values = np.empty((_TILE, dim), np.float32), np.empty((_TILE, dim), np.float32)
        while start < last:
            count = min(_TILE, last - start)
            done = 0
            while done < count:  # a tile may take several pages
                inside = (start + done) % page
                some = min(page - inside, count - done)
                number = table_BX[b, (start + done) // page]
                _widen(k_PGhd, number, inside, h, some, keys, done)
                _widen(v_PGhd, number, inside, h, some, values, done)
                done += some
            _scores(q_BHd, b, h * group, keys, count, scores)
            for g in range(group):
                head = h * group + g
                peak = highest_BHS[b, head, piece]
                for t in range(count):
                    peak = max(peak, scores[g, t])
                fade = exponential(max(highest_BHS[b, head, piece] - peak, np.float32(-100.0)))
                highest_BHS[b, head, piece] = peak
                part = np.float32(0.0)
                for t in range(count):
                    scores[g, t] = exponential(scores[g, t] - peak)
                    part += scores[g, t]
                totals_BHS[b, head, piece] = totals_BHS[b, head, piece] * fade + part
                out = sums_BHSd[b, head, piece]
                for i in range(dim):
                    out[i] *= fade
                _add_values(scores[g], values, count, out)
            start += count
