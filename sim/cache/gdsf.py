"""Greedy-Dual-Size-Frequency, and LFU with dynamic ageing (LFUDA), which is the same with costs that grow with size.

Cherkasova 1998; Arlitt et al. 2000. An entry is worth L + uses × cost ÷ size, set anew at each use; the least worth goes,
and L becomes what it was worth, so that old fame fades. `gdsf` counts every miss alike (cost 1), so among equally used
entries the larger goes. With equal experts the two are one, and a test says so.

Worth is a whole number: one use of an expert of the first layer's size is 2^20.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .state import EVENT, LAST_USE, LAYER_OF, PRIORITY, SCALAR, SIZE, USE_COUNT

_AGE = SCALAR  # row of pool: L, minus 1


@inlined
def _use(s: Any, x: int, pool: int, count: int, by_size: bool) -> None:
    value: Any = 1 << 20
    if by_size:
        value = (s.layer[SIZE, 0] << 20) // s.layer[SIZE, s.expert[LAYER_OF, x]]
    s.when[USE_COUNT, x] = count
    s.when[PRIORITY, x] = s.pool[_AGE, pool] + 1 + count * value
    s.when[LAST_USE, x] = s.clock[EVENT]


@inlined
def hit(s: Any, x: int, pool: int, by_size: bool) -> None:
    _use(s, x, pool, s.when[USE_COUNT, x] + 1, by_size)


@inlined
def insert(s: Any, x: int, pool: int, by_size: bool) -> None:
    _use(s, x, pool, 1, by_size)


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    s.pool[_AGE, pool] = s.when[PRIORITY, x] - 1
