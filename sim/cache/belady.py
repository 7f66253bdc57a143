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
from .state import EVENT, KEY, KEY_BLOCK, LAST_USE, NEXT_USE, OCCUPANT, PIN, SLOT_END, SLOT_START, slot_of

_FREE = -1  # key of a slot that holds nobody: never the farthest


@inlined
def touch(s: Any, x: int) -> None:
    """On a hit and on an insertion: remember by slot when x is needed next."""
    slot, key = slot_of(s, x), s.when[NEXT_USE, x]
    block = slot // KEY_BLOCK
    was = s.slot[KEY, slot]
    s.slot[KEY, slot] = key
    s.when[LAST_USE, x] = s.clock[EVENT]
    if key >= s.block_key[block]:
        s.block_key[block] = key
    elif was == s.block_key[block]:
        _renew(s, block)


@inlined
def evict(s: Any, x: int) -> None:
    slot = slot_of(s, x)
    block = slot // KEY_BLOCK
    was = s.slot[KEY, slot]
    s.slot[KEY, slot] = _FREE
    if was == s.block_key[block]:
        _renew(s, block)


@inlined
def _renew(s: Any, block: int) -> None:
    low = block * KEY_BLOCK
    s.block_key[block] = _farthest_slot(s, low, min(low + KEY_BLOCK, s.slot.shape[1]))


@inlined
def _farthest_slot(s: Any, low: int, high: int) -> int:
    farthest = s.slot[KEY, low]
    for slot in range(low + 1, high):  # a plain maximum: the compiler makes it wide
        farthest = max(farthest, s.slot[KEY, slot])
    return farthest


@inlined
def _farthest_block(s: Any, low: int, high: int) -> int:
    farthest = s.block_key[low]
    for block in range(low + 1, high):
        farthest = max(farthest, s.block_key[block])
    return farthest


@inlined
def victim(s: Any, pool: int) -> int:
    low, high = s.pool[SLOT_START, pool], s.pool[SLOT_END, pool]
    if high == low:
        return -1
    first, last = low // KEY_BLOCK, (high - 1) // KEY_BLOCK
    if low % KEY_BLOCK != 0 or (high % KEY_BLOCK != 0 and high != s.slot.shape[1]):
        return _best_of(s, low, high, -1)  # the pool shares a block with another one
    farthest = _farthest_block(s, first, last + 1)
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
        if s.slot[KEY, slot] == key:
            x = s.slot[OCCUPANT, slot]
            if x >= 0 and not s.expert[PIN, x] and (best < 0 or _goes_before(s, x, best)):
                best = x
    return best


@inlined
def _best_of(s: Any, low: int, high: int, best: int) -> int:
    """The unpinned entry with the farthest next use, every slot looked at."""
    for slot in range(low, high):
        x = s.slot[OCCUPANT, slot]
        if x < 0 or s.expert[PIN, x]:
            continue
        if best < 0:
            best = x
            continue
        ours, theirs = s.slot[KEY, slot], s.slot[KEY, slot_of(s, best)]
        if ours > theirs or (ours == theirs and _goes_before(s, x, best)):
            best = x
    return best


@inlined
def _goes_before(s: Any, x: int, y: int) -> bool:
    return s.when[LAST_USE, x] < s.when[LAST_USE, y] or (s.when[LAST_USE, x] == s.when[LAST_USE, y] and x < y)


@inlined
def worth_admitting(s: Any, x: int, victim: int) -> bool:
    """Bypass rule: only a newcomer that is needed sooner than the victim takes its place."""
    return s.when[NEXT_USE, x] < s.slot[KEY, slot_of(s, victim)]
