"""2Q: first uses wait in a queue of their own; who comes back after leaving it joins the main one.

Johnson and Shasha, VLDB 1994, the full version with their shares: the first queue (A1in, first in first out) may have a
quarter of the pool, the list of who left it (A1out) half as many entries as the pool; the main queue (Am) is LRU.
A use inside the first queue changes nothing.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .segments import join, leave, length, move, oldest, places, trim
from .state import BIT

_FIRST, _MAIN, _GHOST = 1, 2, 3


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    if s.expert[BIT, x] == _MAIN:
        move(s, x, pool, _MAIN)


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    remembered = s.expert[BIT, x] == _GHOST
    if remembered:
        leave(s, x, pool)
    join(s, x, pool, _MAIN if remembered else _FIRST)


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    was_first = s.expert[BIT, x] == _FIRST
    leave(s, x, pool)
    if was_first:
        join(s, x, pool, _GHOST)
        trim(s, pool, _GHOST, max(1, places(s, pool) // 2))


@inlined
def victim(s: Any, pool: int) -> int:
    first, main = oldest(s, pool, _FIRST), oldest(s, pool, _MAIN)
    if first >= 0 and (main < 0 or length(s, pool, _FIRST) > places(s, pool) // 4):
        return first
    return main
