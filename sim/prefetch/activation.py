"""Sequence-level activation matching (MoE-Infinity, arXiv 2401.14361): what a like sequence used, this one will use.

Each running sequence is compared with the remembered ones (`cache/sequences.py`) by the cosine of their activation matrices,
over all that it has used so far; the likest names the experts of the layer `ahead` layers later by the share of
that layer's tokens they took there. At most `top` experts are named (`same`: as many as the present event uses).
The paper clusters what it remembers and compares layer by layer; here it is the sequences that ended last. Until one
has ended, nothing is fetched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cache.sequences import KEPT, row_of
from ..compiled import called
from .ranking import distinct, want_highest


@called
def propose(
    q: Any, block: Any, low: int, high: int, layer: int, num_experts: int, ahead: int, top: int, wanted: Any
) -> None:
    target = layer + ahead
    if target >= block.experts.shape[1]:
        return
    for expert in range(num_experts):
        wanted.score[expert] = 0.0
    for row in range(low, high):
        if block.last_of_run[row]:
            likest = _likest(q, row_of(q, block.sequence[row]))
            if likest >= 0:
                total = 0
                for expert in range(num_experts):
                    total += q.ended[likest, target * num_experts + expert]
                for expert in range(num_experts):
                    wanted.score[expert] += q.ended[likest, target * num_experts + expert] / max(total, 1)
    many = top if top > 0 else distinct(block, low, high, layer, num_experts, wanted)
    want_highest(wanted, target * num_experts, num_experts, many)


@called
def _likest(q: Any, place: int) -> int:
    """The remembered matrix with the largest cosine to a running one; ties to the one remembered in the lower row."""
    best, highest = -1, 0.0
    for m in range(q.size[KEPT]):
        dot: Any = np.int64(0)
        norm: Any = np.int64(0)
        for x in range(q.running.shape[1]):
            theirs = np.int64(q.ended[m, x])
            dot += q.running[place, x] * theirs
            norm += theirs * theirs
        likeness = dot / max(norm, 1) ** 0.5
        if likeness > highest:
            best, highest = m, likeness
    return best
