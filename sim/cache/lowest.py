"""The victim of policies that give each entry a number: the smallest goes."""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .state import LAST_USE, OCCUPANT, PIN, PRIORITY, SLOT_END, SLOT_START


@inlined
def lowest_priority(s: Any, pool: int) -> int:
    """The unpinned entry with the smallest PRIORITY, every slot looked at. Ties: smaller last use, layer, expert id."""
    best = -1
    for slot in range(s.pool[SLOT_START, pool], s.pool[SLOT_END, pool]):
        x = s.slot[OCCUPANT, slot]
        if x < 0 or s.expert[PIN, x]:
            continue
        if best < 0 or _goes_before(s, x, best):
            best = x
    return best


@inlined
def _goes_before(s: Any, x: int, y: int) -> bool:
    if s.when[PRIORITY, x] != s.when[PRIORITY, y]:
        return s.when[PRIORITY, x] < s.when[PRIORITY, y]
    if s.when[LAST_USE, x] != s.when[LAST_USE, y]:
        return s.when[LAST_USE, x] < s.when[LAST_USE, y]
    return x < y
