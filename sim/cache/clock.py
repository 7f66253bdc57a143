"""CLOCK (second chance): a hand goes round the slots; a used entry loses its mark, an unmarked one goes.

Corbató 1968. A new entry is unmarked. Pinned entries are passed over and keep their mark.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined

_HAND = 0


@inlined
def hit(s: Any, x: int) -> None:
    s.bit[x] = 1


@inlined
def insert(s: Any, x: int) -> None:
    s.bit[x] = 0


@inlined
def victim(s: Any, pool: int) -> int:
    low, high = s.slot_start[pool], s.slot_start[pool + 1]
    hand = s.pool_scalar[pool, _HAND]
    hand = max(hand, low)
    for _ in range(2 * (high - low)):  # twice round: once to clear marks, once to find one cleared
        if hand == high:
            hand = low
        x = s.occupant[hand]
        hand += 1
        if x >= 0 and not s.pin[x]:
            if s.bit[x] == 0:
                s.pool_scalar[pool, _HAND] = hand
                return x
            s.bit[x] = 0
    return -1
