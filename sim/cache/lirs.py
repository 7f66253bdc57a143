"""LIRS: who was used twice within a short time stays; the others pass through a small queue.

Jiang and Zhang, SIGMETRICS 2002. A stack holds experts by their last use, gone ones included; the *low* ones (short
inter-reference recency, all but a hundredth of the pool, and at least one place) reach down to its bottom. Resident others wait
in a queue and go first, the longest waiting first. One of them that is used while still in the stack becomes low, and
the lowest of the stack takes its place in the queue. What lies below the last low entry is forgotten. Experts are
few, so the stack needs no limit. Where all that wait are pinned, the lowest entry of the stack goes.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .segments import OWN_SCALAR, join, leave, places
from .state import BIT, NEXT, OCCUPANT, PIN, PRIORITY, SLOT, SLOT_END, SLOT_START, further_list

_STACK = 1
_LOW, _STAMP = OWN_SCALAR, OWN_SCALAR + 1  # rows of pool: low entries and the latest stamp, minus 1
_IS_LOW = 0  # row of links: 1 for low entries


@inlined
def _most_low(s: Any, pool: int) -> int:
    return max(1, places(s, pool) - max(1, places(s, pool) // 100))


@inlined
def _to_top(s: Any, x: int, pool: int) -> None:
    if s.expert[BIT, x] == _STACK:
        leave(s, x, pool)
    join(s, x, pool, _STACK)


@inlined
def _wait(s: Any, x: int, pool: int) -> None:
    """To the end of the queue."""
    s.pool[_STAMP, pool] += 1
    s.when[PRIORITY, x] = s.pool[_STAMP, pool]
    s.links[_IS_LOW, x] = 0


@inlined
def _prune(s: Any, pool: int) -> None:
    """Forget what lies below the last low entry."""
    head = further_list(s, pool, _STACK)
    while s.expert[NEXT, head] != head and s.links[_IS_LOW, s.expert[NEXT, head]] != 1:
        leave(s, s.expert[NEXT, head], pool)


@inlined
def _become_low(s: Any, x: int, pool: int) -> None:
    s.links[_IS_LOW, x] = 1
    s.pool[_LOW, pool] += 1
    _to_top(s, x, pool)
    _prune(s, pool)
    if s.pool[_LOW, pool] + 1 > _most_low(s, pool):
        lowest = s.expert[NEXT, further_list(s, pool, _STACK)]
        s.pool[_LOW, pool] -= 1
        leave(s, lowest, pool)
        _wait(s, lowest, pool)
        _prune(s, pool)


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    if s.links[_IS_LOW, x] == 1:
        _to_top(s, x, pool)
        _prune(s, pool)
    elif s.expert[BIT, x] == _STACK:
        _become_low(s, x, pool)
    else:
        _wait(s, x, pool)
        _to_top(s, x, pool)


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    if s.expert[BIT, x] == _STACK or s.pool[_LOW, pool] + 1 < _most_low(s, pool):
        _become_low(s, x, pool)
    else:
        _wait(s, x, pool)
        _to_top(s, x, pool)


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    if s.links[_IS_LOW, x] == 1:
        s.links[_IS_LOW, x] = 0
        s.pool[_LOW, pool] -= 1
        leave(s, x, pool)
        _prune(s, pool)


@inlined
def victim(s: Any, pool: int) -> int:
    best = -1
    for slot in range(s.pool[SLOT_START, pool], s.pool[SLOT_END, pool]):
        x = s.slot[OCCUPANT, slot]
        if x < 0 or s.expert[PIN, x] or s.links[_IS_LOW, x] == 1:
            continue
        if best < 0 or s.when[PRIORITY, x] < s.when[PRIORITY, best]:
            best = x
    if best >= 0:
        return best
    head = further_list(s, pool, _STACK)
    y: Any = s.expert[NEXT, head]
    while y != head and (s.expert[SLOT, y] == 0 or s.expert[PIN, y]):
        y = s.expert[NEXT, y]
    return -1 if y == head else y
