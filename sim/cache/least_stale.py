"""Least-Stale (SpecMD, arXiv 2602.03921): stale entries go before current ones, passed layers before coming ones.

An entry is *current* if it was used or fetched in the present pass, else *stale*; *left* if its layer has been
reached in this pass, else *right*. Victims, first to last: stale-left, stale-right, current-left,
current-right. The paper's summary says only "stale before current, first in first out"; the split by side
follows its talk of layer position. An entry fetched for the *next* pass is current-right.

`order=fifo` (default): inside a class, the entry that became current longest ago goes first. Two laws follow, and
are tested: without sides (`sides=false`), and with one quota per layer and no prefetch, Least-Stale is LRU.
`order=distance`: left, the most recently passed layer first (it returns latest); right, the farthest ahead first.

Each layer's entries stand in a list of their own, in the order in which they became current, so its stale entries come
before its current ones. The stamps of the lists' heads are kept in a row of their own, and in the usual case (one pool,
`order=fifo`) the victim is the head with the least stamp of a part of that row.
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
_HEAD = LAYER_SCALAR  # row of layer: the stamp of its oldest entry above the layer's number
_LAYER_BITS = 16
_NOBODY = 2**62  # later than any stamp
# when[LAST_USE]: the stamp at which x became current; when[USE_COUNT]: the pass in which it was fetched for the next


@inlined
def begin_event(s: Any) -> None:
    """When a pass begins, all that is held is stale."""
    if s.pool[_SEEN_LAYER, 0] < 0:
        for layer in range(s.layer.shape[1]):
            s.layer[_HEAD, layer] = _NOBODY
    else:
        _note_head(s, s.pool[_SEEN_LAYER, 0])
    s.pool[_SEEN_LAYER, 0] = s.clock[LAYER]
    if s.pool[_SEEN_PASS, 0] != s.clock[PASS]:
        s.pool[_SEEN_PASS, 0] = s.clock[PASS]
        s.pool[_STAMP, 0] += 1
        s.pool[_PASS_STAMP, 0] = s.pool[_STAMP, 0]


@inlined
def _note_head(s: Any, layer: int) -> None:
    head = layer_list(s, layer)
    x = s.expert[NEXT, head]
    s.layer[_HEAD, layer] = _NOBODY if x == head else s.when[LAST_USE, x] << _LAYER_BITS | layer


@inlined
def _become_current(s: Any, x: int, layer: int) -> None:
    s.pool[_STAMP, 0] += 1
    s.when[LAST_USE, x] = s.pool[_STAMP, 0]
    append(s.expert, x, layer_list(s, layer))


@inlined
def hit(s: Any, x: int) -> None:
    """x is of the present layer, whose head is noted when that is asked for, or at the next event."""
    unlink(s.expert, x)
    _become_current(s, x, s.clock[LAYER])
    s.when[USE_COUNT, x] = -1


@inlined
def insert(s: Any, x: int, for_next_pass: bool) -> None:
    layer = s.expert[LAYER_OF, x]
    _become_current(s, x, layer)
    s.layer[_HEAD, layer] = min(s.layer[_HEAD, layer], s.when[LAST_USE, x] << _LAYER_BITS | layer)
    s.when[USE_COUNT, x] = s.clock[PASS] if for_next_pass else -1


@inlined
def evict(s: Any, x: int) -> None:
    unlink(s.expert, x)
    _note_head(s, s.expert[LAYER_OF, x])


@inlined
def victim(s: Any, pool: int) -> int:
    sides = s.parameter[SIDES] != 0
    here = s.clock[LAYER] if sides else s.layer.shape[1] - 1  # without sides all are left
    if s.pool.shape[1] == 1 and s.parameter[DISTANCE] == 0:
        _note_head(s, s.clock[LAYER])
        oldest = _oldest_of(s, 0, here + 1)
        if oldest >= s.pool[_PASS_STAMP, 0] << _LAYER_BITS:  # nobody on the left is stale
            right = _oldest_of(s, here + 1, s.layer.shape[1])
            if oldest == _NOBODY or right < s.pool[_PASS_STAMP, 0] << _LAYER_BITS:
                oldest = right
        if oldest != _NOBODY:
            x: Any = np.int64(s.expert[NEXT, layer_list(s, oldest & ((1 << _LAYER_BITS) - 1))])
            if not s.expert[PIN, x] and not (sides and s.when[USE_COUNT, x] == s.clock[PASS]):
                return x
    return _search(s, pool, here)


@inlined
def _oldest_of(s: Any, low: int, high: int) -> int:
    oldest = _NOBODY
    for layer in range(low, high):  # a plain minimum: the compiler makes it wide
        oldest = min(oldest, s.layer[_HEAD, layer])
    return oldest


@called
def _search(s: Any, pool: int, here: int) -> int:
    """All entries that may go, layer by layer, stale ones first."""
    low, high = (0, s.layer.shape[1]) if s.pool.shape[1] == 1 else (pool, pool + 1)
    sides, by_distance = s.parameter[SIDES] != 0, s.parameter[DISTANCE] != 0
    best, best_class, best_rank = -1, 4, 0
    for layer in range(low, high):
        head = layer_list(s, layer)
        x = s.expert[NEXT, head]
        while x != head:
            if not s.expert[PIN, x]:
                is_stale = s.when[LAST_USE, x] < s.pool[_PASS_STAMP, 0]
                ahead = s.when[USE_COUNT, x] == s.clock[PASS]
                kind = (0 if is_stale else 2) + (layer > here or (ahead and sides))
                rank = s.when[LAST_USE, x]
                if by_distance:  # the higher layer goes first; what is for the next pass is a round farther ahead
                    rank = -layer - (s.layer.shape[1] if ahead else 0)
                if kind < best_class or (kind == best_class and rank < best_rank):
                    best, best_class, best_rank = x, kind, rank
                if not ahead and (sides or not by_distance):
                    break  # who follows in this list became current later, in the same class or a higher one
            x = s.expert[NEXT, x]
    return best
