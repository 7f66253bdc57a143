"""ARC: two LRU lists, used once and used again, whose shares follow what the ghosts of each would have brought.

Megiddo and Modha, FAST 2003. T1 and T2 are resident, B1 and B2 remember who left them; p is how much of the pool T1 is
meant to have. A return from B1 raises p, one from B2 lowers it, by the ratio of the ghost lists (a whole number, at
least 1). Where all of the list that should give way is pinned, the other one does. Their case of a full T1 without
ghosts ("delete, do not remember") comes out by cutting the ghost lists after the insertion.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .segments import OWN_SCALAR, join, leave, length, move, oldest, places, trim
from .state import BIT

_ONCE, _AGAIN, _ONCE_GHOST, _AGAIN_GHOST = 1, 2, 3, 4  # T1, T2, B1, B2
_TARGET, _TARGET_THEN, _THEN_OF = range(
    OWN_SCALAR, OWN_SCALAR + 3
)  # p, minus 1; the next p, and whose insertion sets it


@inlined
def _adapted(s: Any, x: int, pool: int) -> int:
    """p after x comes back."""
    target = s.pool[_TARGET, pool] + 1
    once, again = length(s, pool, _ONCE_GHOST), length(s, pool, _AGAIN_GHOST)
    if s.expert[BIT, x] == _ONCE_GHOST:
        return min(target + max(1, again // once), places(s, pool))
    if s.expert[BIT, x] == _AGAIN_GHOST:
        return max(target - max(1, once // again), 0)
    return target


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    move(s, x, pool, _AGAIN)


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    was_decided = s.pool[_THEN_OF, pool] == x  # by `victim`, before the ghost lists changed
    target = s.pool[_TARGET_THEN, pool] if was_decided else _adapted(s, x, pool)
    s.pool[_TARGET, pool] = target - 1
    s.pool[_THEN_OF, pool] = -1
    remembered = s.expert[BIT, x] != 0
    if remembered:
        leave(s, x, pool)
    join(s, x, pool, _AGAIN if remembered else _ONCE)
    size = places(s, pool)
    trim(s, pool, _ONCE_GHOST, size - length(s, pool, _ONCE))
    resident = length(s, pool, _ONCE) + length(s, pool, _AGAIN)
    trim(s, pool, _AGAIN_GHOST, 2 * size - resident - length(s, pool, _ONCE_GHOST))


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    ghost = _ONCE_GHOST if s.expert[BIT, x] == _ONCE else _AGAIN_GHOST
    move(s, x, pool, ghost)


@inlined
def victim(s: Any, pool: int, newcomer: int) -> int:
    target = _adapted(s, newcomer, pool)
    s.pool[_TARGET_THEN, pool] = target
    s.pool[_THEN_OF, pool] = newcomer
    once, again = oldest(s, pool, _ONCE), oldest(s, pool, _AGAIN)
    many = length(s, pool, _ONCE)
    from_once = many > target or (many == target and s.expert[BIT, newcomer] == _AGAIN_GHOST)
    if once >= 0 and (from_once or again < 0):
        return once
    return again
