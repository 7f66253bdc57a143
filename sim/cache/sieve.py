"""SIEVE: a queue whose hand moves from old to young, clearing marks, and evicts the first unmarked entry.

Zhang et al., NSDI 2024. Unlike CLOCK a surviving entry keeps its place in the queue and newcomers always join
at the young end. Pinned entries are passed over and keep their mark.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .chain import append, unlink
from .state import BIT, NEXT, PIN, SCALAR, pool_list

_HAND = SCALAR  # row of pool: entry the hand points at; the head or −1 means "start at the old end"


@inlined
def hit(s: Any, x: int) -> None:
    s.expert[BIT, x] = 1


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    s.expert[BIT, x] = 0
    append(s.expert, x, pool_list(s, pool))


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    if s.pool[_HAND, pool] == x:
        s.pool[_HAND, pool] = s.expert[NEXT, x]
    unlink(s.expert, x)


@inlined
def victim(s: Any, pool: int) -> int:
    head = pool_list(s, pool)
    x = s.pool[_HAND, pool]
    wraps = 0
    while wraps < 3:  # a full round may start in the middle of the queue
        if x < 0 or x == head:
            x = s.expert[NEXT, head]
            wraps += 1
            if x == head:
                return -1
        if not s.expert[PIN, x]:
            if s.expert[BIT, x] == 0:
                s.pool[_HAND, pool] = x
                return x
            s.expert[BIT, x] = 0
        x = s.expert[NEXT, x]
    return -1
