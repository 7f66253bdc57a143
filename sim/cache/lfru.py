"""Least frequently-recently used: the smallest uses ÷ age goes, age in events since the last use.

The compared policy of arXiv 2608.07911 (frequency over age). Compared as whole numbers, cross-multiplied, so
no rounding decides. Ties: smaller last use, then layer, then expert id.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .state import EVENT, LAST_USE, OCCUPANT, PIN, SLOT_END, SLOT_START, USE_COUNT


@inlined
def hit(s: Any, x: int) -> None:
    s.when[USE_COUNT, x] += 1
    s.when[LAST_USE, x] = s.clock[EVENT]


@inlined
def insert(s: Any, x: int) -> None:
    s.when[USE_COUNT, x] = 1
    s.when[LAST_USE, x] = s.clock[EVENT]


@inlined
def victim(s: Any, pool: int) -> int:
    now = s.clock[EVENT]
    best, best_count, best_age = -1, 0, 1
    for slot in range(s.pool[SLOT_START, pool], s.pool[SLOT_END, pool]):
        x = s.slot[OCCUPANT, slot]
        if x < 0 or s.expert[PIN, x]:
            continue
        count, age = s.when[USE_COUNT, x], now - s.when[LAST_USE, x] + 1
        ours, theirs = count * best_age, best_count * age
        if (
            best < 0
            or ours < theirs
            or (ours == theirs and (age > best_age or (age == best_age and x < best)))
        ):
            best, best_count, best_age = x, count, age
    return best
