"""From a miss policy's integer code to what becomes of each miss of an event.

A member that is not loaded gets a KIND of its own (below HIT: no copy; above the kinds of miss: a lower-precision copy);
its kind of miss has been counted before. `core.step` asks once an event, when all members are classified.
"""

from __future__ import annotations

from typing import Any

from ..compiled import called, inlined
from . import ledger as k
from . import miss_host, miss_lower, miss_skip, miss_substitute
from .plan import EXPERT, KIND, MEMBERS, PLACE, WEIGHT
from .state import LAYER, MOVED, OCCUPANT, PIN, SIZE

LOAD, HOST, LOWER, SUBSTITUTE, SKIP = range(5)


@called
def serve_misses(
    miss: int, limit: int, table: Any, together: Any, admitting: bool, s: Any, plan: Any, counts: Any
) -> None:
    """Decide about every miss of the event, and take back what was counted of copies that are not made."""
    layer = s.clock[LAYER]
    room = miss_host.room(s, layer) if miss == HOST and admitting else 0
    for i in range(plan.size[MEMBERS]):
        counts[k.WEIGHT_ALL] += plan.member[WEIGHT, i]
        if plan.member[KIND, i] <= k.HIT:
            continue
        if miss == HOST:
            if room >= s.layer[SIZE, layer]:
                room -= s.layer[SIZE, layer]
            elif miss_host.takes(plan, i, layer, table):
                _not_moved(s, plan, i, k.ON_HOST, k.HOST_COMPUTED, counts)
        elif miss == LOWER:
            if miss_lower.takes(plan, i, limit):
                plan.member[KIND, i] = k.LOWERED
                counts[k.LOWERED_COPIES] += 1
                counts[k.WEIGHT_LOWERED] += plan.member[WEIGHT, i]
                counts[k.DEMAND_BYTES] -= s.layer[SIZE, layer] - table[layer, 0]
        elif miss == SKIP:
            if miss_skip.takes(plan, i, limit):
                counts[k.WEIGHT_SKIPPED] += plan.member[WEIGHT, i]
                _not_moved(s, plan, i, k.SKIPPED, k.SKIPS, counts)
        elif miss == SUBSTITUTE and miss_skip.takes(plan, i, limit):
            y = miss_substitute.buddy(s, plan.member[EXPERT, i], layer, together)
            if y >= 0:
                counts[k.WEIGHT_SUBSTITUTED] += plan.member[WEIGHT, i]
                _not_moved(s, plan, i, k.SUBSTITUTED, k.SUBSTITUTIONS, counts)
                miss_substitute.stand_in(s, plan, i, y)


@inlined
def _not_moved(s: Any, plan: Any, i: int, kind: int, count: int, counts: Any) -> None:
    if plan.member[KIND, i] == k.KIND_COMPULSORY:
        s.expert[MOVED, plan.member[EXPERT, i]] = 0  # it still has never been moved
    plan.member[KIND, i] = kind
    counts[count] += 1
    counts[k.MOVED] -= 1
    counts[k.DEMAND_BYTES] -= s.layer[SIZE, s.clock[LAYER]]


@called
def release_substitutes(s: Any, plan: Any) -> None:
    """The event is decided: who stands in for others may go again."""
    for i in range(plan.size[MEMBERS]):
        if plan.member[KIND, i] == k.SUBSTITUTED:
            s.expert[PIN, s.slot[OCCUPANT, plan.member[PLACE, i]]] = 0
