"""Doubly linked lists in two rows of `CacheState.expert`. The head's next is the oldest entry."""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .state import NEXT, PIN, PREVIOUS


@inlined
def append(expert: Any, x: int, head: int) -> None:
    """Put x at the young end."""
    last = expert[PREVIOUS, head]
    expert[NEXT, last] = x
    expert[PREVIOUS, x] = last
    expert[NEXT, x] = head
    expert[PREVIOUS, head] = x


@inlined
def unlink(expert: Any, x: int) -> None:
    before, after = expert[PREVIOUS, x], expert[NEXT, x]
    expert[NEXT, before] = after
    expert[PREVIOUS, after] = before


@inlined
def oldest_unpinned(expert: Any, head: int) -> int:
    """First entry from the old end that may go, −1 when all are pinned."""
    x = expert[NEXT, head]
    while x != head and expert[PIN, x]:
        x = expert[NEXT, x]
    return -1 if x == head else x
