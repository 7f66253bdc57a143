"""Let a resident expert of the same layer do a missed one's work (BuddyMoE, arXiv 2511.10054).

The buddy is the one that tokens so far have most often chosen together with the missed expert (ties: the smaller id), of
those that this event does not need, that have been used since they came in (so that no copy of theirs is under way) and
that stand in for nobody else in this event. Without such an expert the missed one is loaded. The buddy keeps its slot
through the event; standing in is no use of it in the eyes of the eviction policy. The paper's buddies also come from
profiled co-activation, profiled ahead; here they are learnt from the past of the run.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .plan import PLACE
from .state import PIN, SLOT, UNUSED_PREFETCH, slot_of


@inlined
def buddy(s: Any, x: int, layer: int, together: Any) -> int:
    experts = together.shape[1]
    best, most = -1, 0
    for other in range(experts):
        y = layer * experts + other
        is_free = s.expert[SLOT, y] and not s.expert[PIN, y] and not s.expert[UNUSED_PREFETCH, y]
        if is_free and together[x, other] > most:
            best, most = y, together[x, other]
    return best


@inlined
def stand_in(s: Any, plan: Any, i: int, y: int) -> None:
    s.expert[PIN, y] = 1
    plan.member[PLACE, i] = slot_of(s, y)
