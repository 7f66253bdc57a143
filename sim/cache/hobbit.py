"""HOBBIT's multidimensional priority (arXiv 2411.01433): recency, frequency, uses that mattered, and layer distance.

The sum of four shares, the least goes: the pass of the last use ÷ passes so far (LRU), events that used it ÷ passes
(LFU), those in which the use mattered ÷ passes (LHU, see `lhu.py`), and 1 − layers until it is reached again ÷ layers (FLD,
farthest layer first). Counted for every expert, resident or not. Ours: the four weigh alike (the paper tunes them model by
model), and counts run over the whole replay, not over one sequence. (The form is from memory of the paper's section on
caching.) Compared as whole numbers over one denominator. Ties: smaller last use, then layer, then expert id.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .lhu import mattered
from .plan import EXPERT, MEMBERS
from .state import LAST_USE, LAYER, LAYER_OF, OCCUPANT, PASS, PIN, PRIORITY, SLOT_END, SLOT_START, USE_COUNT


@inlined
def begin_event(s: Any, plan: Any) -> None:
    """LAST_USE is the pass, from 0; PRIORITY counts uses that mattered."""
    for i in range(plan.size[MEMBERS]):
        x = plan.member[EXPERT, i]
        s.when[LAST_USE, x] = s.clock[PASS]
        s.when[USE_COUNT, x] += 1
        s.when[PRIORITY, x] += mattered(plan, i)


@inlined
def victim(s: Any, pool: int) -> int:
    layers, passes = s.layer.shape[1], s.clock[PASS] + 1
    best, least = -1, 0
    for slot in range(s.pool[SLOT_START, pool], s.pool[SLOT_END, pool]):
        x = s.slot[OCCUPANT, slot]
        if x < 0 or s.expert[PIN, x]:
            continue
        until = s.expert[LAYER_OF, x] - s.clock[LAYER]
        if until < 0:
            until += layers
        seen = s.when[LAST_USE, x] + 1 + s.when[USE_COUNT, x] + s.when[PRIORITY, x]
        worth = seen * layers + passes * (layers - until)
        if (
            best < 0
            or worth < least
            or (
                worth == least
                and (
                    s.when[LAST_USE, x] < s.when[LAST_USE, best]
                    or (s.when[LAST_USE, x] == s.when[LAST_USE, best] and x < best)
                )
            )
        ):
            best, least = x, worth
    return best
