"""Which experts each running sequence has used (MoE-Infinity's activation matrices), and those of sequences that ended."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import called
from .activation import TOKENS_OF_LAYER
from .state import USE_COUNT

KEPT, NEXT_PLACE = 0, 1  # columns of Sequences.size
NOBODY, PREFETCHER, POLICY = 0, 1, 2  # who asks: only the eviction that owns them has its counts written into the state
REMEMBERED = 64  # matrices of ended sequences; the oldest gives way. The paper keeps a few hundred, clustered


class Sequences(NamedTuple):
    """Q sequences at most pass together; n experts in all; M matrices are remembered. Empty where nobody asks."""

    owner: NDArray[np.int64]
    """[Q] the sequence a row belongs to, −1 none."""
    running: NDArray[np.int32]
    """[Q, n] tokens of the sequence that were routed to x."""
    ended: NDArray[np.int32]
    """[M, n]"""
    size: NDArray[np.int64]
    """[2] matrices of ended sequences, and where the next one goes."""


def new_sequences(most_at_once: int, num_experts_in_all: int, *, remember: bool) -> Sequences:
    return Sequences(
        np.full(most_at_once, -1, np.int64),
        np.zeros((most_at_once, num_experts_in_all), np.int32),
        np.zeros((REMEMBERED if remember else 0, num_experts_in_all if remember else 0), np.int32),
        np.zeros(2, np.int64),
    )


@called
def row_of(q: Any, sequence: int) -> int:
    for row in range(q.owner.shape[0]):
        if q.owner[row] == sequence:
            return row
    return -1


@called
def follow(q: Any, s: Any, asks: int, block: Any, low: int, high: int, layer: int) -> None:
    """Note an event as soon as its experts are known, before anything is decided about it.

    `asks` POLICY: the counts go into the state too, into rows where another policy would hold its own. A sequence keeps
    its row until one that is new to the batch needs it; only then has it ended.
    """
    n = q.running.shape[1]
    first = layer * (n // block.experts.shape[1])
    if layer == 0:
        for row in range(low, high):
            if block.last_of_run[row] and row_of(q, block.sequence[row]) < 0:
                _enter(q, s, asks, block, low, high, block.sequence[row])
    for row in range(low, high):
        place = row_of(q, block.sequence[row])
        for column in range(block.experts.shape[2]):
            if block.experts[row, layer, column] >= 0:
                x = first + block.experts[row, layer, column]
                q.running[place, x] += 1
                if asks == POLICY:
                    s.when[USE_COUNT, x] += 1
                    s.layer[TOKENS_OF_LAYER, layer] += 1


@called
def _enter(q: Any, s: Any, asks: int, block: Any, low: int, high: int, sequence: int) -> None:
    """Give a new sequence the first row whose owner is not in the present pass; remember what the owner used."""
    n, layers = q.running.shape[1], block.experts.shape[1]
    for place in range(q.owner.shape[0]):
        is_here = False
        for row in range(low, high):
            is_here = is_here or block.sequence[row] == q.owner[place]
        if is_here:
            continue
        if q.owner[place] >= 0:
            if q.ended.shape[0] > 0:
                for x in range(n):
                    q.ended[q.size[NEXT_PLACE], x] = q.running[place, x]
                q.size[NEXT_PLACE] = (q.size[NEXT_PLACE] + 1) % q.ended.shape[0]
                q.size[KEPT] = min(q.size[KEPT] + 1, q.ended.shape[0])
            for x in range(n):
                if asks == POLICY:
                    s.when[USE_COUNT, x] -= q.running[place, x]
                    s.layer[TOKENS_OF_LAYER, x // (n // layers)] -= q.running[place, x]
                q.running[place, x] = 0
        q.owner[place] = sequence
        return
