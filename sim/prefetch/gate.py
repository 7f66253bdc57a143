"""Gate speculation: the gate of a coming layer, applied to the present hidden state, says whom to fetch.

mixtral-offloading (arXiv 2312.17238), Pre-gated MoE, Fate, AdapMoE, HOBBIT and SpecMD use it. The guesses are the
trace's `predicted`; the best guess of every token comes first, then every token's second, and so on. With a score
threshold a token's guesses end at the first one below it. `layers=one` looks at the layer `ahead` layers later,
`layers=each` at all up to it, the nearest first; the engine's byte budget then decides how far ahead is reached.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .parameters import AHEAD, EACH, LEAST_SCORE, TOP
from .request import MANY, close, want


@inlined
def propose(
    block: Any, low: int, high: int, layer: int, num_experts: int, whole: Any, real: Any, wanted: Any
) -> None:
    wanted.size[MANY] = 0
    ahead, least_score = whole[AHEAD], real[LEAST_SCORE]
    by_score = least_score > 0.0 and block.scores.shape[0] > 0
    for step in range(1 if whole[EACH] != 0 else ahead, ahead + 1):
        target = layer + step
        if target >= block.experts.shape[1] or block.predicted.shape[0] == 0:
            break
        for rank in range(min(whole[TOP], block.predicted.shape[3])):
            for row in range(low, high):
                expert = block.predicted[row, layer, step - 1, rank]
                if expert >= 0 and not (by_score and block.scores[row, layer, step - 1, rank] < least_score):
                    want(wanted, target * num_experts + expert)
    close(wanted, False)
