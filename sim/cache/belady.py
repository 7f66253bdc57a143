"""The two Beladys: the entry whose next use lies farthest ahead goes (Belady 1966). They need the future.

`belady-mandatory` must admit every missed expert (a machine whose experts have to sit in a slot);
`belady-bypass` may stream a missed expert through when everything resident is needed sooner. They are two
different bounds: choose the one that matches the machine. Both bound misses *without prefetch* only, and with
experts of equal size only. Ties: smaller last use, then layer, then expert id.

Slots stand in blocks of 64 whose largest key is kept, so that a victim is found in C ÷ 64 + 64 steps.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .state import EVENT, KEY_BLOCK

_FREE = -1  # key of a slot that holds nobody: never the farthest


@inlined
def touch(s: Any, x: int) -> None:
    """On a hit and on an insertion: remember by slot when x is needed next."""
    slot, key = s.slot_of[x], s.next_use[x]
    block = slot // KEY_BLOCK
    was = s.slot_key[slot]
    s.slot_key[slot] = key
    s.last_use[x] = s.clock[EVENT]
    if key >= s.block_key[block]:
        s.block_key[block] = key
    elif was == s.block_key[block]:
        _renew(s, block)


@inlined
def evict(s: Any, x: int) -> None:
    slot = s.slot_of[x]
    block = slot // KEY_BLOCK
    was = s.slot_key[slot]
    s.slot_key[slot] = _FREE
    if was == s.block_key[block]:
        _renew(s, block)


@inlined
def _renew(s: Any, block: int) -> None:
    low = block * KEY_BLOCK
    s.block_key[block] = _farthest(s.slot_key, low, min(low + KEY_BLOCK, s.slot_key.shape[0]))


@inlined
def _farthest(keys: Any, low: int, high: int) -> int:
    farthest = keys[low]
    for slot in range(low + 1, high):  # a plain maximum: the compiler makes it wide
        farthest = max(farthest, keys[slot])
    return farthest


@inlined
def victim(s: Any, pool: int) -> int:
    low, high = s.slot_start[pool], s.slot_start[pool + 1]
    if high == low:
        return -1
    first, last = low // KEY_BLOCK, (high - 1) // KEY_BLOCK
    if low % KEY_BLOCK != 0 or (high % KEY_BLOCK != 0 and high != s.slot_key.shape[0]):
        return _best_of(s, low, high, -1)  # the pool shares a block with another one
    farthest = _farthest(s.block_key, first, last + 1)
    best = -1
    for block in range(first, last + 1):
        if s.block_key[block] == farthest:
            start = block * KEY_BLOCK
            best = _best_with(s, start, min(start + KEY_BLOCK, high), farthest, best)
    return best if best >= 0 else _best_of(s, low, high, -1)


@inlined
def _best_with(s: Any, low: int, high: int, key: int, best: int) -> int:
    """The unpinned entry with exactly this key that goes first."""
    for slot in range(low, high):
        if s.slot_key[slot] == key:
            x = s.occupant[slot]
            if x >= 0 and not s.pin[x] and (best < 0 or _goes_before(s, x, best)):
                best = x
    return best


@inlined
def _best_of(s: Any, low: int, high: int, best: int) -> int:
    """The unpinned entry with the farthest next use, every slot looked at."""
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


@inlined
def _goes_before(s: Any, x: int, y: int) -> bool:
    return s.last_use[x] < s.last_use[y] or (s.last_use[x] == s.last_use[y] and x < y)


@inlined
def worth_admitting(s: Any, x: int, victim: int) -> bool:
    """Bypass rule: only a newcomer that is needed sooner than the victim takes its place."""
    return s.next_use[x] < s.slot_key[s.slot_of[victim]]
