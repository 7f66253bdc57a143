"""Expert-map search (fMoE, arXiv 2502.05370): the earlier pass that began like this one says how this one goes on.

A map is the path of one pass of one sequence: the experts its last token used, layer by layer. As a pass advances, each running
sequence is compared with the maps of the last 256 passes, its own earlier ones among them, by how many (layer, expert) they
share so far; the likest (of equals the latest) names the experts of the layer `ahead` layers later, each by how many
running sequences it was named for. The paper compares gate probabilities by cosine, and prompts by their embedding before the
first layers; traces hold neither, so here it is the experts chosen, from the first layer on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import called
from .ranking import distinct, want_highest

REMEMBERED = 256  # maps; the oldest gives way. The paper keeps a thousand
_KEPT, _NEXT = 0, 1  # columns of Maps.size


class Maps(NamedTuple):
    """M maps, L layers, K experts a token, Q sequences at most in a pass. Empty where nobody asks."""

    path: NDArray[np.int32]
    """[M, L, K]"""
    shared: NDArray[np.int32]
    """[Q, M] what each sequence of the present pass has in common with each map so far."""
    size: NDArray[np.int64]
    """[2] maps, and where the next one goes."""


def new_maps(most_at_once: int, num_layers: int, top_k: int) -> Maps:
    """`most_at_once` sequences pass together; 0 where nobody asks."""
    remembered = REMEMBERED if most_at_once else 0
    return Maps(
        np.full((remembered, num_layers, top_k), -1, np.int32),
        np.zeros((most_at_once, remembered), np.int32),
        np.zeros(2, np.int64),
    )


@called
def compare(maps: Any, block: Any, low: int, high: int, layer: int) -> None:
    """Note an event's experts in what its sequences share with the maps; at the last layer their paths become maps."""
    if layer == 0:
        maps.shared[:] = 0
    place = 0
    for row in range(low, high):
        if not block.last_of_run[row]:
            continue
        for m in range(maps.size[_KEPT]):
            common = 0
            for column in range(block.experts.shape[2]):
                for other in range(block.experts.shape[2]):
                    mine = block.experts[row, layer, column]
                    common += mine >= 0 and mine == maps.path[m, layer, other]
            maps.shared[place, m] += common
        place += 1
    if layer == block.experts.shape[1] - 1:
        for row in range(low, high):
            if block.last_of_run[row]:
                _remember(maps, block, row)


@called
def _remember(maps: Any, block: Any, row: int) -> None:
    m = maps.size[_NEXT]
    for layer in range(block.experts.shape[1]):
        for column in range(block.experts.shape[2]):
            maps.path[m, layer, column] = block.experts[row, layer, column]
    maps.size[_NEXT] = (m + 1) % maps.path.shape[0]
    maps.size[_KEPT] = min(maps.size[_KEPT] + 1, maps.path.shape[0])


@called
def propose(
    maps: Any, block: Any, low: int, high: int, layer: int, num_experts: int, ahead: int, top: int, wanted: Any
) -> None:
    target = layer + ahead
    if target >= block.experts.shape[1]:
        return
    for expert in range(num_experts):
        wanted.score[expert] = 0.0
    place = 0
    for row in range(low, high):
        if not block.last_of_run[row]:
            continue
        likest = _likest(maps, place)
        place += 1
        if likest < 0:
            continue
        for column in range(maps.path.shape[2]):
            expert = maps.path[likest, target, column]
            if expert >= 0:
                wanted.score[expert] += 1.0
    many = top if top > 0 else distinct(block, low, high, layer, num_experts, wanted)
    want_highest(wanted, target * num_experts, num_experts, many)


@called
def _likest(maps: Any, place: int) -> int:
    """The map that shares most, −1 when none shares anything; of equals the one remembered last."""
    best, most = -1, 0
    for back in range(1, maps.size[_KEPT] + 1):
        m = (maps.size[_NEXT] - back) % maps.path.shape[0]
        if maps.shared[place, m] > most:
            best, most = m, maps.shared[place, m]
    return best
