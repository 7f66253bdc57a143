"""Gate speculation: the gate of a coming layer, applied to the present hidden state, says whom to fetch.

mixtral-offloading (arXiv 2312.17238), Pre-gated MoE, Fate, AdapMoE, HOBBIT and SpecMD use it. The guesses are the
trace's `predicted`; the best guess of every token comes first, then every token's second, and so on. With a score
threshold a token's guesses end at the first one below it. `layers=one` looks at the layer `ahead` layers later,
`layers=each` at all up to it, the nearest first; the engine's byte budget then decides how far ahead is reached.
"""

from __future__ import annotations

from typing import Any

from ..compiled import called
from .request import close, want


@called
def propose(
    block: Any,
    low: int,
    high: int,
    layer: int,
    num_experts: int,
    ahead: int,
    each: bool,
    top: int,
    least_score: float,
    wanted: Any,
) -> None:
    if block.predicted.shape[0] == 0:
        return
    by_score = least_score > 0.0 and block.scores.shape[0] > 0
    for step in range(1 if each else ahead, ahead + 1):
        target = layer + step
        if target >= block.experts.shape[1]:
            break
        for rank in range(min(top, block.predicted.shape[3])):
            for row in range(low, high):
                expert = block.predicted[row, layer, step - 1, rank]
                if expert >= 0 and not (by_score and block.scores[row, layer, step - 1, rank] < least_score):
                    want(wanted, target * num_experts + expert)
    close(wanted, False)
