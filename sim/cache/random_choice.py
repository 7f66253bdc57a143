"""Random: any entry that may go, each with equal chance. xorshift64* (Vigna 2016), seeded by the run's generator."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import inlined
from .state import OCCUPANT, PIN, SLOT_END, SLOT_START

_TRIES = 64


@inlined
def _draw(state: Any) -> Any:
    x = state[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    state[0] = x
    return np.int64(
        (x * np.uint64(2685821657736338717)) >> np.uint64(33)
    )  # 31 bits: no sign, no bias to speak of


@inlined
def victim(s: Any, pool: int) -> int:
    low, high = s.pool[SLOT_START, pool], s.pool[SLOT_END, pool]
    if high == low:
        return -1
    slot = low
    for _ in range(_TRIES):
        slot = low + _draw(s.random_state) % (high - low)
        x = s.slot[OCCUPANT, slot]
        if x >= 0 and not s.expert[PIN, x]:
            return x
    for step in range(high - low):  # nearly all are pinned: take the next that is not
        x = s.slot[OCCUPANT, low + (slot - low + step) % (high - low)]
        if x >= 0 and not s.expert[PIN, x]:
            return x
    return -1
