"""Products of stored rows with few vectors, read once and never copied: what decoding does with weights.

Matrix libraries pack the weights before they multiply, which for a handful of tokens costs more than the product: bf16
weights were seen to stream at 7 GB/s and core there, at 20 here.

Shape letters: S segments (an expert each) of consecutive pairs P; a pair is a token and one expert it goes to.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from .compiled import exponential, inlined, load, parallel

Array = Any
_BLOCK = 16  # rows a task: 16 rows of 1024 bf16 are 32 KiB, long enough for the memory's prefetchers


@inlined
def dots_2_4(
    one: Array, two: Array, a: Array, b: Array, c: Array, d: Array
) -> tuple[np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32, np.float32]:
    """Two stored rows with four vectors. Eight sums run side by side, which hides the latency of their additions."""
    a1 = b1 = c1 = d1 = a2 = b2 = c2 = d2 = np.float32(0.0)
    for i in range(one.shape[0]):
        v1, v2 = load(one[i]), load(two[i])
        a1 += v1 * a[i]
        b1 += v1 * b[i]
        c1 += v1 * c[i]
        d1 += v1 * d[i]
        a2 += v2 * a[i]
        b2 += v2 * b[i]
        c2 += v2 * c[i]
        d2 += v2 * d[i]
    return a1, b1, c1, d1, a2, b2, c2, d2


@inlined
def dot_1(row: Array, x: Array) -> np.float32:
    """One stored row with one vector: a single sum, which the compiler unrolls; two at once ran at half the speed."""
    total = np.float32(0.0)
    for i in range(row.shape[0]):
        total += load(row[i]) * x[i]
    return total


@parallel
def few_rows_product(x_MK: Array, w_NK: Array, y_MN: Array) -> None:
    """y = x wᵀ for few rows of fp32 x; w in fp32 or bf16."""
    rows, outputs = y_MN.shape
    for task in numba.prange((outputs + _BLOCK - 1) // _BLOCK):
        for n in range(task * _BLOCK, min(outputs, (task + 1) * _BLOCK), 2):
            other = min(n + 1, outputs - 1)  # an odd last row is its own partner
            one, two = w_NK[n], w_NK[other]
            m = 0
            while m + 4 <= rows:
                values = dots_2_4(one, two, x_MK[m], x_MK[m + 1], x_MK[m + 2], x_MK[m + 3])
                for j in range(4):
                    y_MN[m + j, n], y_MN[m + j, other] = values[j], values[4 + j]
                m += 4
            while m < rows:
                y_MN[m, n], y_MN[m, other] = dot_1(one, x_MK[m]), dot_1(two, x_MK[m])
                m += 1


@inlined
def _act(gate: np.float32, silu: bool) -> np.float32:
    if silu:
        if gate >= 0:
            return gate / (np.float32(1.0) + exponential(-gate))
        e = exponential(gate)
        return gate * e / (np.float32(1.0) + e)
    kept = max(gate, np.float32(0.0))
    return kept * kept


@parallel
def experts_in(
    x_TW: Array, w_NIW: Array, experts_S: Array, starts_S: Array, ends_S: Array, tokens_P: Array, weights_P: Array,
    width: int, silu: bool, hidden_PM: Array,
) -> None:  # fmt: skip
    """hidden[p] = weight[p] · act(gate) · up of pair p's token in its segment's expert; without a gate weight · act(up)."""
    blocks = (width + _BLOCK - 1) // _BLOCK
    gated = w_NIW.shape[1] > width
    step = 1 if gated else 2  # rows done together: gate and up of one place, or two places
    for task in numba.prange(len(experts_S) * blocks):
        s, block = task // blocks, task % blocks
        for m in range(block * _BLOCK, min(width, (block + 1) * _BLOCK), step):
            other = m if gated else min(m + 1, width - 1)
            one = w_NIW[experts_S[s], m]
            two = w_NIW[experts_S[s], m + width if gated else other]
            p, end = starts_S[s], ends_S[s]
            while p < end:
                if p + 4 <= end:
                    values = dots_2_4(
                        one,
                        two,
                        x_TW[tokens_P[p]],
                        x_TW[tokens_P[p + 1]],
                        x_TW[tokens_P[p + 2]],
                        x_TW[tokens_P[p + 3]],
                    )
                    done = 4
                else:
                    first, second = dot_1(one, x_TW[tokens_P[p]]), dot_1(two, x_TW[tokens_P[p]])
                    values = (first, first, first, first, second, second, second, second)
                    done = 1
                for j in range(done):
                    weight = weights_P[p + j]
                    if gated:
                        hidden_PM[p + j, m] = weight * _act(values[j], silu) * values[4 + j]
                    else:
                        hidden_PM[p + j, m] = weight * _act(values[j], silu)
                        hidden_PM[p + j, other] = weight * _act(values[4 + j], silu)
                p += done


@parallel
def experts_out(
    hidden_PM: Array,
    w_NWM: Array,
    experts_S: Array,
    starts_S: Array,
    ends_S: Array,
    tokens_P: Array,
    y_TW: Array,
) -> None:
    """y[token of p] += w_out[expert] · hidden[p]. A task owns rows of the output, so no two add to one place."""
    outputs = w_NWM.shape[1]
    for task in numba.prange((outputs + _BLOCK - 1) // _BLOCK):
        first, last = task * _BLOCK, min(outputs, (task + 1) * _BLOCK)
        for s in range(len(experts_S)):
            for n in range(first, last, 2):
                has_two = n + 1 < last
                one, two = w_NWM[experts_S[s], n], w_NWM[experts_S[s], n + 1 if has_two else n]
                p, end = starts_S[s], ends_S[s]
                while p < end:
                    if p + 4 <= end:
                        values = dots_2_4(
                            one, two, hidden_PM[p], hidden_PM[p + 1], hidden_PM[p + 2], hidden_PM[p + 3]
                        )
                        done = 4
                    else:
                        u, v = dot_1(one, hidden_PM[p]), dot_1(two, hidden_PM[p])
                        values = (u, u, u, u, v, v, v, v)
                        done = 1
                    for j in range(done):
                        y_TW[tokens_P[p + j], n] += values[j]
                        if has_two:
                            y_TW[tokens_P[p + j], n + 1] += values[4 + j]
                    p += done
