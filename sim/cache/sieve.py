"""SIEVE: a queue whose hand moves from old to young, clearing marks, and evicts the first unmarked entry.

Zhang et al., NSDI 2024. Unlike CLOCK a surviving entry keeps its place in the queue and newcomers always join
at the young end. Pinned entries are passed over and keep their mark.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .chain import NEXT, append, unlink

_HAND = 0  # pool scalar: entry the hand points at; the sentinel or −1 means "start at the old end"


@inlined
def hit(s: Any, x: int) -> None:
    s.bit[x] = 1


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    s.bit[x] = 0
    append(s.chain, x, s.slot_of.shape[0] + pool)


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    if s.pool_scalar[pool, _HAND] == x:
        s.pool_scalar[pool, _HAND] = s.chain[NEXT, x]
    unlink(s.chain, x)


@inlined
def victim(s: Any, pool: int) -> int:
    sentinel = s.slot_of.shape[0] + pool
    x = s.pool_scalar[pool, _HAND]
    wraps = 0
    while wraps < 3:  # a full round may start in the middle of the queue
        if x < 0 or x == sentinel:
            x = s.chain[NEXT, sentinel]
            wraps += 1
            if x == sentinel:
                return -1
        if not s.pin[x]:
            if s.bit[x] == 0:
                s.pool_scalar[pool, _HAND] = x
                return x
            s.bit[x] = 0
        x = s.chain[NEXT, x]
    return -1
