"""CLOCK (second chance): a hand goes round the slots; a used entry loses its mark, an unmarked one goes.

Corbató 1968. A new entry is unmarked. Pinned entries are passed over and keep their mark.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .state import BIT, OCCUPANT, PIN, SCALAR, SLOT_END, SLOT_START

_HAND = SCALAR  # row of pool


@inlined
def hit(s: Any, x: int) -> None:
    s.expert[BIT, x] = 1


@inlined
def insert(s: Any, x: int) -> None:
    s.expert[BIT, x] = 0


@inlined
def victim(s: Any, pool: int) -> int:
    low, high = s.pool[SLOT_START, pool], s.pool[SLOT_END, pool]
    hand = s.pool[_HAND, pool]
    hand = max(hand, low)
    for _ in range(2 * (high - low)):  # twice round: once to clear marks, once to find one cleared
        if hand == high:
            hand = low
        x = s.slot[OCCUPANT, hand]
        hand += 1
        if x >= 0 and not s.expert[PIN, x]:
            if s.expert[BIT, x] == 0:
                s.pool[_HAND, pool] = hand
                return x
            s.expert[BIT, x] = 0
    return -1
