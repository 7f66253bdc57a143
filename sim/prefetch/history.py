"""Prefetchers that learn from the tokens seen so far, and from nothing else: co-activation and the hot set.

`coactivation`: of the layer `ahead` layers later, the experts that most probably follow: each expert that a token uses
now gives every expert there the share of its past uses that went on to it; the sums decide (a first-order Markov
chain over layers). `hot`: the experts of that layer that were used most often so far.

Both name at most `top` experts (`same`: as many as the present event uses), never one that was never seen.
"""

from __future__ import annotations

from typing import Any

from ..compiled import called
from .ranking import distinct, want_highest


@called
def propose(
    history: Any, block: Any, low: int, high: int, layer: int, num_experts: int, ahead: int, top: int, by_cause: bool,
    wanted: Any,
) -> None:  # fmt: skip
    """`history.follows` is kept by `cache/history.py`."""
    target = layer + ahead
    if target >= block.experts.shape[1]:
        return
    for expert in range(num_experts):
        uses = history.follows[target * num_experts + expert, num_experts]
        wanted.score[expert] = 0.0 if by_cause else uses * 1.0
    if by_cause:
        _add_causes(history, block, low, high, layer, num_experts, wanted)
    many = top if top > 0 else distinct(block, low, high, layer, num_experts, wanted)
    want_highest(wanted, target * num_experts, num_experts, many)


@called
def _add_causes(
    history: Any, block: Any, low: int, high: int, layer: int, num_experts: int, wanted: Any
) -> None:
    for row in range(low, high):
        for column in range(block.experts.shape[2]):
            cause = block.experts[row, layer, column]
            if cause >= 0:
                x = layer * num_experts + cause
                seen = max(1, history.follows[x, num_experts])
                for expert in range(num_experts):
                    wanted.score[expert] += history.follows[x, expert] / seen
