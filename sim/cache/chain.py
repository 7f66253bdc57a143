"""A doubly linked list per pool, in two rows of `links`. The sentinel's next is the oldest entry."""

from __future__ import annotations

from typing import Any

from ..compiled import inlined

NEXT, PREVIOUS = 0, 1


@inlined
def append(links: Any, x: int, sentinel: int) -> None:
    """Put x at the young end."""
    last = links[PREVIOUS, sentinel]
    links[NEXT, last] = x
    links[PREVIOUS, x] = last
    links[NEXT, x] = sentinel
    links[PREVIOUS, sentinel] = x


@inlined
def unlink(links: Any, x: int) -> None:
    before, after = links[PREVIOUS, x], links[NEXT, x]
    links[NEXT, before] = after
    links[PREVIOUS, after] = before


@inlined
def oldest_unpinned(links: Any, pin: Any, sentinel: int) -> int:
    """First entry from the old end that may go, −1 when all are pinned."""
    x = links[NEXT, sentinel]
    while x != sentinel and pin[x]:
        x = links[NEXT, x]
    return -1 if x == sentinel else x
