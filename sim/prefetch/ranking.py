"""What prefetchers share that rank the experts of one layer by a score: `wanted.score`, filled by them."""

from __future__ import annotations

from typing import Any

from ..compiled import called
from .request import close, want


@called
def want_highest(wanted: Any, first: int, num_experts: int, many: int) -> None:
    """Want the `many` highest scores above 0, highest first, ties to the smaller id; `first` is the layer's expert 0."""
    for _ in range(min(many, num_experts)):
        best = -1
        for expert in range(num_experts):
            if wanted.score[expert] > 0.0 and (best < 0 or wanted.score[expert] > wanted.score[best]):
                best = expert
        if best < 0:
            break
        wanted.score[best] = 0.0
        want(wanted, first + best)
    close(wanted, False)


@called
def distinct(block: Any, low: int, high: int, layer: int, num_experts: int, wanted: Any) -> int:
    """How many experts an event uses."""
    many, first = 0, layer * num_experts
    for row in range(low, high):
        for column in range(block.experts.shape[2]):
            expert = block.experts[row, layer, column]
            if expert >= 0 and wanted.seen[first + expert] == 0:
                wanted.seen[first + expert] = 1
                many += 1
    for expert in range(num_experts):
        wanted.seen[first + expert] = 0
    return many
