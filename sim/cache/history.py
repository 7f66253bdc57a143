"""What a run has seen so far, for policies and prefetchers that learn from the past and from nothing else."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import called


class History(NamedTuple):
    """Counts over the tokens of all events before the present one. Arrays that nobody asks for are empty."""

    together: NDArray[np.int32]
    """[n, N] tokens that chose expert x and expert id e of the same layer."""
    follows: NDArray[np.int32]
    """[n, N + 1] tokens that chose x, and e of the layer `ahead` layers later; last column: tokens that chose x."""


def new_history(num_layers: int, num_experts: int, *, together: bool, follows: bool) -> History:
    n = num_layers * num_experts
    return History(
        np.zeros((n if together else 0, num_experts), np.int32),
        np.zeros((n if follows else 0, num_experts + 1), np.int32),
    )


@called
def learn(history: Any, experts: Any, low: int, high: int, layer: int, ahead: int) -> None:
    """Note one event, after it was decided: rows low … high−1 at `layer`, and how they came here from `ahead` before."""
    many, before = history.together.shape[1], layer - ahead
    for row in range(low, high):
        for column in range(experts.shape[2]):
            expert = experts[row, layer, column]
            if expert < 0:
                continue
            x = layer * many + expert
            if history.together.shape[0] > 0:
                for other in range(experts.shape[2]):
                    if other != column and experts[row, layer, other] >= 0:
                        history.together[x, experts[row, layer, other]] += 1
            if history.follows.shape[0] > 0:
                history.follows[x, many] += 1
                if before >= 0:
                    for other in range(experts.shape[2]):
                        cause = experts[row, before, other]
                        if cause >= 0:
                            history.follows[before * many + cause, expert] += 1
