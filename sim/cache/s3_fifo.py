"""S3-FIFO: newcomers pass a small queue first, and only those used there reach the main one.

Yang et al., SOSP 2023. The small queue has a tenth of the pool; who leaves it with fewer than two uses goes, and is
remembered in a ghost list as long as the main queue; who comes back while remembered enters the main queue. There an
entry goes round once for each use (at most three are kept) before it goes. Pinned entries are passed over.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .segments import join, leave, length, move, oldest, places, trim
from .state import BIT, USE_COUNT

_SMALL, _MAIN, _GHOST = 1, 2, 3
_MOST_USES, _USES_TO_STAY = 3, 2  # two bits of use; the paper's "more than once"


@inlined
def _small_share(s: Any, pool: int) -> int:
    return max(1, places(s, pool) // 10)


@inlined
def hit(s: Any, x: int) -> None:
    s.when[USE_COUNT, x] = min(s.when[USE_COUNT, x] + 1, _MOST_USES)


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    s.when[USE_COUNT, x] = 0
    remembered = s.expert[BIT, x] == _GHOST
    if remembered:
        leave(s, x, pool)
    join(s, x, pool, _MAIN if remembered else _SMALL)


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    was_small = s.expert[BIT, x] == _SMALL
    leave(s, x, pool)
    if was_small:
        join(s, x, pool, _GHOST)
        trim(s, pool, _GHOST, places(s, pool) - _small_share(s, pool))


@inlined
def victim(s: Any, pool: int) -> int:
    while True:
        small, main = oldest(s, pool, _SMALL), oldest(s, pool, _MAIN)
        if small >= 0 and (main < 0 or length(s, pool, _SMALL) >= _small_share(s, pool)):
            if s.when[USE_COUNT, small] < _USES_TO_STAY:
                return small
            s.when[USE_COUNT, small] = 0
            move(s, small, pool, _MAIN)
        elif main < 0 or s.when[USE_COUNT, main] == 0:
            return main
        else:
            s.when[USE_COUNT, main] -= 1
            move(s, main, pool, _MAIN)
