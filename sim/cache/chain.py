"""A doubly linked list per pool, in the two rows of `CacheState.chain`. The sentinel's next is the oldest entry."""

from __future__ import annotations

from typing import Any

from ..compiled import inlined

NEXT, PREVIOUS = 0, 1


@inlined
def append(chain: Any, x: int, sentinel: int) -> None:
    """Put x at the young end."""
    last = chain[PREVIOUS, sentinel]
    chain[NEXT, last] = x
    chain[PREVIOUS, x] = last
    chain[NEXT, x] = sentinel
    chain[PREVIOUS, sentinel] = x


@inlined
def unlink(chain: Any, x: int) -> None:
    before, after = chain[PREVIOUS, x], chain[NEXT, x]
    chain[NEXT, before] = after
    chain[PREVIOUS, after] = before


@inlined
def oldest_unpinned(chain: Any, pin: Any, sentinel: int) -> int:
    """First entry from the old end that may go, −1 when all are pinned."""
    x = chain[NEXT, sentinel]
    while x != sentinel and pin[x]:
        x = chain[NEXT, x]
    return -1 if x == sentinel else x
