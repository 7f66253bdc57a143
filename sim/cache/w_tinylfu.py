"""W-TinyLFU: a small LRU window before a segmented LRU, and use counts that decide who of the two gives way.

Einziger, Friedman and Manes 2017. The window has a hundredth of the pool (at least one place), the protected segment four
fifths of the rest. When room is needed, the window's oldest entry meets the first of the main part: the one used
less often goes, the window's on a tie. Uses are counted exactly, resident or not (experts are few, no sketch is
needed), and halved after ten uses a place.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .segments import OWN_SCALAR, join, leave, length, move, oldest, places
from .slru import promote
from .state import BIT, NEXT, POOL_OF, USE_COUNT, further_list

_WINDOW, _PROBATION, _PROTECTED = 1, 2, 3
_SAMPLES = OWN_SCALAR  # row of pool: uses since counts were halved, minus 1
_SAMPLES_A_PLACE = 10


@inlined
def _window(s: Any, pool: int) -> int:
    return max(1, places(s, pool) // 100)


@inlined
def _count(s: Any, x: int, pool: int) -> None:
    s.when[USE_COUNT, x] += 1
    s.pool[_SAMPLES, pool] += 1
    if s.pool[_SAMPLES, pool] + 1 >= _SAMPLES_A_PLACE * places(s, pool):
        for y in range(s.when.shape[1]):
            if s.expert[POOL_OF, y] == pool:
                s.when[USE_COUNT, y] >>= 1
        s.pool[_SAMPLES, pool] = (s.pool[_SAMPLES, pool] + 1) // 2 - 1


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    _count(s, x, pool)
    if s.expert[BIT, x] == _WINDOW:
        move(s, x, pool, _WINDOW)
    else:
        promote(s, x, pool, _PROBATION, _PROTECTED, 4 * (places(s, pool) - _window(s, pool)) // 5)


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    _count(s, x, pool)
    join(s, x, pool, _WINDOW)
    if length(s, pool, _WINDOW) > _window(s, pool):
        move(s, s.expert[NEXT, further_list(s, pool, _WINDOW)], pool, _PROBATION)


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    leave(s, x, pool)


@inlined
def victim(s: Any, pool: int) -> int:
    window, main = oldest(s, pool, _WINDOW), oldest(s, pool, _PROBATION)
    if main < 0:
        main = oldest(s, pool, _PROTECTED)
    if main < 0:
        return window
    if window < 0 or length(s, pool, _WINDOW) < _window(s, pool):
        return main
    return window if s.when[USE_COUNT, window] <= s.when[USE_COUNT, main] else main
