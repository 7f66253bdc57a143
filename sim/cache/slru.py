"""Segmented LRU: who is used while on probation becomes protected; probation goes first.

Karedla, Love and Wherry 1994. The protected segment has four fifths of the pool; who is pushed out of it is on
probation again, as its youngest.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .segments import join, leave, length, move, oldest, places
from .state import NEXT, further_list

_PROBATION, _PROTECTED = 1, 2


@inlined
def promote(s: Any, x: int, pool: int, probation: int, protected: int, most: int) -> None:
    """A use: x becomes the youngest protected entry; the oldest beyond `most` is on probation again."""
    move(s, x, pool, protected)
    if length(s, pool, protected) > most:
        move(s, s.expert[NEXT, further_list(s, pool, protected)], pool, probation)


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    promote(s, x, pool, _PROBATION, _PROTECTED, 4 * places(s, pool) // 5)


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    join(s, x, pool, _PROBATION)


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    leave(s, x, pool)


@inlined
def victim(s: Any, pool: int) -> int:
    x = oldest(s, pool, _PROBATION)
    return x if x >= 0 else oldest(s, pool, _PROTECTED)
