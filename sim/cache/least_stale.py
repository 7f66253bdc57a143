"""Least-Stale (SpecMD, arXiv 2602.03921): stale entries go before current ones, passed layers before coming ones.

An entry is *current* if it was used or fetched in the present pass, else *stale*; *left* if its layer has been
reached in this pass, else *right*. Victims, first to last: stale-left, stale-right, current-left,
current-right. The paper's summary says only "stale before current, first in first out"; the split by side
follows its talk of layer position. An entry fetched for the *next* pass is current-right.

`order=fifo` (default): inside a class, the entry that became current longest ago goes first. Two laws follow, and
are tested: without sides (`sides=false`), and with one quota per layer and no prefetch, Least-Stale is LRU.
`order=distance`: left, the most recently passed layer first (it returns latest); right, the farthest ahead first.

Each layer's entries stand in a list of their own, in the order in which they became current: its stale entries come
before its current ones, so a victim is found by looking at the heads of the layers' lists. For the usual case (one
pool, `order=fifo`) the stale heads' stamps are kept in a row of their own, and the victim is the least of a part of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import called, inlined
from .chain import append, unlink
from .state import (
    LAST_USE,
    LAYER,
    LAYER_OF,
    LAYER_SCALAR,
    NEXT,
    PASS,
    PIN,
    SCALAR,
    USE_COUNT,
    layer_list,
)

SIDES, DISTANCE = 0, 1  # parameters
_STAMP, _PASS_STAMP, _SEEN_PASS, _SEEN_LAYER = range(SCALAR, SCALAR + 4)  # rows of pool, in pool 0
# Rows of layer: entries that are stale, and all; the stamp of the oldest if it is stale, above its layer's number
_STALE, _HELD, _OLDEST = range(LAYER_SCALAR, LAYER_SCALAR + 3)
_LAYER_BITS = 16
_NOBODY = 2**62  # later than any stamp
# when[LAST_USE]: the stamp at which x became current; when[USE_COUNT]: the pass in which it was fetched for the next


@inlined
def begin_event(s: Any) -> None:
    """When a pass begins, all that is held is stale."""
    if s.pool[_SEEN_PASS, 0] != s.clock[PASS]:
        s.pool[_SEEN_PASS, 0] = s.clock[PASS]
        s.pool[_STAMP, 0] += 1
        s.pool[_PASS_STAMP, 0] = s.pool[_STAMP, 0]
        for layer in range(s.layer.shape[1]):
            s.layer[_STALE, layer] = s.layer[_HELD, layer]
            _note_oldest(s, layer)
    elif s.pool[_SEEN_LAYER, 0] >= 0:
        _note_oldest(s, s.pool[_SEEN_LAYER, 0])
    s.pool[_SEEN_LAYER, 0] = s.clock[LAYER]


@inlined
def _note_oldest(s: Any, layer: int) -> None:
    oldest = _NOBODY
    if s.layer[_STALE, layer] > 0:
        oldest = s.when[LAST_USE, s.expert[NEXT, layer_list(s, layer)]] << _LAYER_BITS | layer
    s.layer[_OLDEST, layer] = oldest


@inlined
def _become_current(s: Any, x: int, layer: int) -> None:
    s.pool[_STAMP, 0] += 1
    s.when[LAST_USE, x] = s.pool[_STAMP, 0]
    append(s.expert, x, layer_list(s, layer))


@inlined
def _leave(s: Any, x: int, layer: int) -> None:
    unlink(s.expert, x)
    s.layer[_STALE, layer] -= s.when[LAST_USE, x] < s.pool[_PASS_STAMP, 0]


@inlined
def hit(s: Any, x: int) -> None:
    """x is of the present layer, whose oldest entry is noted when that is asked for, or at the next event."""
    layer = s.clock[LAYER]
    _leave(s, x, layer)
    _become_current(s, x, layer)
    s.when[USE_COUNT, x] = -1


@inlined
def insert(s: Any, x: int, for_next_pass: bool) -> None:
    layer = s.expert[LAYER_OF, x]
    s.layer[_HELD, layer] += 1
    _become_current(s, x, layer)
    s.when[USE_COUNT, x] = s.clock[PASS] if for_next_pass else -1


@inlined
def evict(s: Any, x: int) -> None:
    layer = s.expert[LAYER_OF, x]
    s.layer[_HELD, layer] -= 1
    _leave(s, x, layer)
    _note_oldest(s, layer)


@inlined
def victim(s: Any, pool: int) -> int:
    here = s.clock[LAYER] if s.parameter[SIDES] != 0 else s.layer.shape[1] - 1  # without sides all are left
    if s.pool.shape[1] == 1 and s.parameter[DISTANCE] == 0:
        _note_oldest(s, s.clock[LAYER])
        oldest = _oldest_of(s, 0, here + 1)
        if oldest == _NOBODY:
            oldest = _oldest_of(s, here + 1, s.layer.shape[1])
        if oldest != _NOBODY:
            x: Any = np.int64(s.expert[NEXT, layer_list(s, oldest & ((1 << _LAYER_BITS) - 1))])
            if not s.expert[PIN, x]:  # a stale entry may be pinned as somebody's stand-in
                return x
    return _search(s, pool, here)


@inlined
def _oldest_of(s: Any, low: int, high: int) -> int:
    oldest = _NOBODY
    for layer in range(low, high):  # a plain minimum: the compiler makes it wide
        oldest = min(oldest, s.layer[_OLDEST, layer])
    return oldest


@called
def _search(s: Any, pool: int, here: int) -> int:
    """Looks at layers that hold stale entries first; at the others only when no stale entry may go."""
    low, high = (0, s.layer.shape[1]) if s.pool.shape[1] == 1 else (pool, pool + 1)
    sides, by_distance = s.parameter[SIDES] != 0, s.parameter[DISTANCE] != 0
    best, best_class, best_rank = -1, 4, 0
    for stale in (True, False):
        for layer in range(low, high):
            if stale and layer > here and best_class == 0:
                break
            if stale and s.layer[_STALE, layer] == 0:
                continue
            head = layer_list(s, layer)
            x = s.expert[NEXT, head]
            while x != head:
                if not s.expert[PIN, x]:
                    is_stale = s.when[LAST_USE, x] < s.pool[_PASS_STAMP, 0]
                    ahead = s.when[USE_COUNT, x] == s.clock[PASS]
                    kind = (0 if is_stale else 2) + (layer > here or (ahead and sides))
                    rank = s.when[LAST_USE, x]
                    if (
                        by_distance
                    ):  # the higher layer goes first; what is for the next pass is a round farther ahead
                        rank = -layer - (s.layer.shape[1] if ahead else 0)
                    if kind < best_class or (kind == best_class and rank < best_rank):
                        best, best_class, best_rank = x, kind, rank
                    if not ahead and (sides or not by_distance):
                        break  # who follows in this list became current later, in the same class or a higher one
                x = s.expert[NEXT, x]
        if best_class < 2:
            return best
    return best
