"""Activation-aware (MoE-Infinity, arXiv 2401.14361): what the running sequences have used least, late layers first.

Of the tokens of the sequences that run now, an expert has a share of those routed in its layer; its priority is
(share + ε) × (1 − layer ÷ layers), and the lowest goes. `cache/history.py` keeps the counts (the paper's expert
activation matrix), a sequence's until another takes its place in the batch. ε only lets layers decide among the
unused. Ties: smaller last use, then layer, then expert id.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .state import EVENT, LAST_USE, LAYER_OF, LAYER_SCALAR, OCCUPANT, PIN, SLOT_END, SLOT_START, USE_COUNT

TOKENS_OF_LAYER = LAYER_SCALAR  # row of layer; when[USE_COUNT] holds those of an expert
_EPSILON = 1e-4


@inlined
def use(s: Any, x: int) -> None:
    """On a hit and on an insertion."""
    s.when[LAST_USE, x] = s.clock[EVENT]


@inlined
def victim(s: Any, pool: int) -> int:
    best, lowest = -1, 0.0
    layers = s.layer.shape[1]
    for slot in range(s.pool[SLOT_START, pool], s.pool[SLOT_END, pool]):
        x = s.slot[OCCUPANT, slot]
        if x < 0 or s.expert[PIN, x]:
            continue
        layer = s.expert[LAYER_OF, x]
        share = s.when[USE_COUNT, x] / max(s.layer[TOKENS_OF_LAYER, layer], 1)
        priority = (share + _EPSILON) * (layers - layer)
        if best < 0 or priority < lowest or (priority == lowest and _goes_before(s, x, best)):
            best, lowest = x, priority
    return best


@inlined
def _goes_before(s: Any, x: int, y: int) -> bool:
    return s.when[LAST_USE, x] < s.when[LAST_USE, y] or (s.when[LAST_USE, x] == s.when[LAST_USE, y] and x < y)
