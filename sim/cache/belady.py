"""The two Beladys: the entry whose next use lies farthest ahead goes (Belady 1966). They need the future.

`belady-mandatory` must admit every missed expert (a machine whose experts have to sit in a slot);
`belady-bypass` may stream a missed expert through when everything resident is needed sooner. They are two
different bounds: choose the one that matches the machine. Both bound misses *without prefetch* only, and with
experts of equal size only. Ties: smaller last use, then layer, then expert id.
"""

from __future__ import annotations

from typing import Any

from ..compiled import compiled
from .state import EVENT


@compiled
def touch(s: Any, x: int) -> None:
    """On a hit and on an insertion: remember by slot when x is needed next."""
    s.slot_key[s.slot_of[x]] = s.next_use[x]
    s.last_use[x] = s.clock[EVENT]


@compiled
def _farthest(keys: Any, low: int, high: int) -> int:
    farthest = keys[low]
    for slot in range(low + 1, high):  # a plain maximum: the compiler makes it wide
        farthest = max(farthest, keys[slot])
    return farthest


@compiled
def victim(s: Any, pool: int) -> int:
    low, high = s.slot_start[pool], s.slot_start[pool + 1]
    if high == low:
        return -1
    best = -1
    farthest = _farthest(s.slot_key, low, high)
    for slot in range(low, high):
        if s.slot_key[slot] == farthest:
            x = s.occupant[slot]
            if x >= 0 and not s.pin[x] and (best < 0 or _goes_before(s, x, best)):
                best = x
    return best if best >= 0 else _farthest_unpinned(s, low, high)


@compiled
def _farthest_unpinned(s: Any, low: int, high: int) -> int:
    best = -1
    for slot in range(low, high):
        x = s.occupant[slot]
        if x < 0 or s.pin[x]:
            continue
        if best < 0:
            best = x
            continue
        ours, theirs = s.slot_key[slot], s.slot_key[s.slot_of[best]]
        if ours > theirs or (ours == theirs and _goes_before(s, x, best)):
            best = x
    return best


@compiled
def _goes_before(s: Any, x: int, y: int) -> bool:
    return s.last_use[x] < s.last_use[y] or (s.last_use[x] == s.last_use[y] and x < y)


@compiled
def evict(s: Any, x: int) -> None:
    s.slot_key[s.slot_of[x]] = -1  # a free slot is nobody's farthest


@compiled
def worth_admitting(s: Any, x: int, victim: int) -> bool:
    """Bypass rule: only a newcomer that is needed sooner than the victim takes its place."""
    return s.next_use[x] < s.slot_key[s.slot_of[victim]]
