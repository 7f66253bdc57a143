"""What a routing trace looks like in numbers: loads, reuse, working sets, what one layer or a guess tells of another.

Each function reads one layer at a time, so that a memory-mapped trace is never whole in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .expert_trace import PADDING, ExpertTrace

WINDOWS = (16, 64, 256)
ROWS = 65536
MOST_EXPERTS_PAIRED = 4096  # a table of experts × experts beyond this is memory for little


@dataclass(frozen=True, slots=True)
class LoadInfo:
    """How evenly one layer's experts are used."""

    max_over_mean: float
    """Uses of the most used expert over the mean over all experts, unused ones included; 1 is even."""
    cv: float
    """Standard deviation over mean of the uses."""
    entropy_bits: float
    entropy_share: float
    """Entropy over log₂ N; 1 is even. (1 also where a layer has one expert.)"""
    zipf_exponent: float | None
    """Slope s of load ∝ rank^−s, least squares on logarithms weighted by load; None with fewer than 3 experts used."""
    unused: int


@dataclass(frozen=True, slots=True)
class ReuseInfo:
    """Share of a token's experts that the token before it in its sequence used too."""

    pairs: int
    measured: float | None
    by_loads: float | None
    """The same for two tokens that have nothing to do with each other, with these loads."""


@dataclass(frozen=True, slots=True)
class GuessInfo:
    """How much of what a layer uses stood in the guess made `ahead` layers before it."""

    ahead: int
    guesses: int
    recall_first_k: float
    """Share of the experts used that are among the first K guesses (K: the trace's top-k)."""
    recall_all: float
    chance_first_k: float
    """What K guesses would get with the K most used experts of each layer, whatever the token."""


def layer_ids_of(trace: ExpertTrace, layer: int) -> NDArray[np.int64]:
    """Expert ids of one layer, [T, K], as int64: only this layer is in memory."""
    return np.asarray(trace.experts_TLK[:, layer, :]).astype(np.int64)


def counts_of(ids_TK: NDArray[np.int64], num_experts: int) -> NDArray[np.int64]:
    """Uses of each expert; padding is no use (case B04)."""
    return np.bincount(ids_TK[ids_TK != PADDING], minlength=num_experts)


def load_info(counts_N: NDArray[np.int64]) -> LoadInfo:
    total, experts = int(counts_N.sum()), counts_N.size
    mean = total / experts
    share = counts_N[counts_N > 0] / total
    entropy = float(-(share * np.log2(share)).sum())
    return LoadInfo(
        max_over_mean=float(counts_N.max() / mean),
        cv=float(counts_N.std() / mean),
        entropy_bits=entropy,
        entropy_share=entropy / float(np.log2(experts)) if experts > 1 else 1.0,
        zipf_exponent=_zipf(counts_N),
        unused=int((counts_N == 0).sum()),
    )


def _zipf(counts_N: NDArray[np.int64]) -> float | None:
    used = np.sort(counts_N[counts_N > 0])[::-1].astype(np.float64)
    if used.size < 3:
        return None
    x, y = np.log(np.arange(1, used.size + 1)), np.log(used)
    x, y = x - np.average(x, weights=used), y - np.average(y, weights=used)
    return float(-(used * x * y).sum() / (used * x * x).sum())


def overlap(of_TK: NDArray[np.int64], with_TM: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of each row's experts stand in the same row of the other array; padding matches nothing."""
    found = np.zeros(of_TK.shape[0], np.int64)
    for first in range(0, of_TK.shape[0], ROWS):
        rows = slice(first, first + ROWS)
        same = of_TK[rows, :, None] == with_TM[rows, None, :]
        found[rows] = (same.any(axis=2) & (of_TK[rows] != PADDING)).sum(axis=1)
    return found


def consecutive(trace: ExpertTrace) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """[T − 1] which rows follow the row before them in one sequence, and which of these do so in decode."""
    follows = np.ones(trace.num_tokens - 1, bool)
    follows[trace.sequence_start_S[1:] - 1] = False
    if trace.is_prefill_T is None:
        return follows, np.zeros(follows.shape, bool)
    decoded = ~np.asarray(trace.is_prefill_T)
    return follows, follows & decoded[1:] & decoded[:-1]


def reuse_info(ids_TK: NDArray[np.int64], pairs: NDArray[np.bool_], counts_N: NDArray[np.int64]) -> ReuseInfo:
    after, before = ids_TK[1:][pairs], ids_TK[:-1][pairs]
    used = int((after != PADDING).sum())
    tokens = int((ids_TK != PADDING).any(axis=1).sum())
    total = int(counts_N.sum())
    return ReuseInfo(
        pairs=int(pairs.sum()),
        measured=float(overlap(after, before).sum() / used) if used else None,
        # A token is not paired with itself, hence n(n − 1).
        by_loads=float((counts_N * (counts_N - 1)).sum() / ((tokens - 1) * total)) if tokens > 1 else None,
    )


def working_set(ids_TK: NDArray[np.int64], starts_S: NDArray[np.int64], num_experts: int) -> dict[int, float]:
    """Mean number of distinct experts in windows of so many consecutive tokens of one sequence, side by side.

    Only whole windows count; a width that no sequence has is absent.
    """
    tokens = ids_TK.shape[0]
    lengths = np.diff(np.r_[starts_S, tokens])
    position = np.arange(tokens) - np.repeat(starts_S, lengths)
    length_T = np.repeat(lengths, lengths)
    found: dict[int, float] = {}
    for width in WINDOWS:
        whole = position < length_T // width * width
        if not whole.any():
            continue
        window = np.cumsum(position[whole] % width == 0) - 1
        ids = ids_TK[whole]
        distinct, windows = 0, int(window[-1]) + 1
        per_block = max(1, (1 << 24) // num_experts)
        for first in range(0, windows, per_block):
            rows = slice(*np.searchsorted(window, [first, first + per_block]))
            seen = np.zeros((min(per_block, windows - first), num_experts + 1), bool)
            seen[window[rows, None] - first, ids[rows]] = True  # padding (−1) falls into the last column
            distinct += int(seen[:, :num_experts].sum())
        found[width] = distinct / windows
    return found


def cross_layer(trace: ExpertTrace) -> float | None:
    """How far above chance the experts of one layer tell those of the next, 0 to 1; None where it cannot be said.

    In the first half of the trace each expert gets a partner in the next layer: the one whose use rises most when
    it is used. In the second half it is counted how often the partner is used too, above what loads alone give.
    """
    half = trace.num_tokens // 2
    if trace.num_layers < 2 or half < 2 or trace.num_experts > MOST_EXPERTS_PAIRED:
        return None
    found, size = list[float](), trace.num_experts
    before = [_half(trace, 0, first, half) for first in (0, half)]
    for layer in range(1, trace.num_layers):
        after = [_half(trace, layer, first, half) for first in (0, half)]
        learnt = _together(before[0], after[0], size)
        uses, uses_next = counts_of(before[0], size), counts_of(after[0], size)
        rows = before[0].shape[0]
        rise = learnt / np.maximum(uses, 1)[:, None] - uses_next[None, :] / rows
        partner = rise.argmax(axis=1)
        tested, uses, uses_next = (
            _together(before[1], after[1], size),
            counts_of(before[1], size),
            counts_of(after[1], size),
        )
        known = counts_of(before[0], size) > 0
        total = float(uses[known].sum())
        if total:
            together = float(tested[np.arange(size), partner][known].sum()) / total
            chance = float((uses[known] * uses_next[partner[known]]).sum()) / (total * before[1].shape[0])
            if chance < 1:
                found.append((together - chance) / (1 - chance))
        before = after
    return float(np.mean(found)) if found else None


def _half(trace: ExpertTrace, layer: int, first: int, rows: int) -> NDArray[np.int64]:
    return np.asarray(trace.experts_TLK[first : first + min(rows, ROWS), layer]).astype(np.int64)


def _together(one_TK: NDArray[np.int64], other_TK: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """How many tokens use expert e in one layer and f in the other."""
    left, right = np.broadcast_arrays(one_TK[:, :, None], other_TK[:, None, :])
    real = (left != PADDING) & (right != PADDING)
    return np.bincount(left[real] * size + right[real], minlength=size * size).reshape(size, size)


def guess_info(trace: ExpertTrace, counts_LN: NDArray[np.int64]) -> Iterator[GuessInfo]:
    """One entry for each number of layers ahead that the trace has guesses for."""
    guess = trace.predicted_TLHM
    if guess is None:
        return
    top_k = trace.top_k
    for h in range(guess.shape[2]):
        used = first_k = anywhere = hot = 0
        for layer in range(trace.num_layers - h - 1):
            made = np.asarray(guess[:, layer, h, :]).astype(np.int64)
            some = (made != PADDING).any(axis=1)
            made, ids = made[some], layer_ids_of(trace, layer + h + 1)[some]
            used += int((ids != PADDING).sum())
            first_k += int(overlap(ids, made[:, :top_k]).sum())
            anywhere += int(overlap(ids, made).sum())
            favourites = np.argsort(-counts_LN[layer + h + 1], kind="stable")[:top_k]
            hot += int(np.isin(ids, favourites).sum())
        if used:
            yield GuessInfo(h + 1, int(guess.shape[3]), first_k / used, anywhere / used, hot / used)


def constant_layers(trace: ExpertTrace, counts_LN: NDArray[np.int64]) -> list[int]:
    """Layers in which every token used the same experts (a router that was never asked, most likely)."""
    if trace.num_tokens < 2 or trace.num_experts <= trace.top_k:
        return []
    same = ((counts_LN == 0) | (counts_LN == trace.num_tokens)).all(axis=1)
    return [int(layer) for layer in trace.layer_ids_L[same]]


def repeated_tokens(trace: ExpertTrace) -> int:
    """Tokens that have, in every layer, exactly the experts of the token before them: dummy or padding rows look so."""
    if trace.num_layers < 2:
        return 0
    follows, _ = consecutive(trace)
    found = 0
    for first in range(0, trace.num_tokens - 1, ROWS // 8):
        block = np.sort(trace.experts_TLK[first : first + ROWS // 8 + 1], axis=2)
        same = (block[1:] == block[:-1]).all(axis=(1, 2))
        found += int((same & follows[first : first + same.size]).sum())
    return found
