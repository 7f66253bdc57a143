"""Least-Stale (SpecMD, arXiv 2602.03921): stale entries go before current ones, passed layers before coming ones.

An entry is *current* if it was used or fetched in the present pass, else *stale*; *left* if its layer has been
reached in this pass, else *right*. Victims, first to last: stale-left, stale-right, current-left,
current-right. The paper's summary says only "stale before current, first in first out"; the split by side
follows its talk of layer position. An entry fetched for the *next* pass is current-right.

`order=fifo` (default): inside a class, the entry that became current longest ago goes first. The list below is
therefore a recency list whose old part is stale and whose young part is current. Two laws follow, and are
tested: without sides (`sides=false`), and with one quota per layer and no prefetch, Least-Stale is LRU.
`order=distance`: left, the most recently passed layer first (it returns latest); right, the farthest ahead first.
"""

from __future__ import annotations

from typing import Any

from ..compiled import compiled, inlined
from .chain import NEXT, append, unlink
from .state import LAYER, PASS

SIDES, DISTANCE = 0, 1  # parameters
_STALE_LEFT, _SEEN_PASS, _SEEN_LAYER = 0, 1, 2  # pool scalars; the last two in pool 0
_STALE, _CURRENT = 0, 1  # columns of layer_count
# last_use[x]: the pass in which x became current; use_count[x]: the pass in which it was fetched for the next one


@inlined
def begin_event(s: Any) -> None:
    """Turn current into stale when a pass begins, and count the stale entries on the left as layers go by."""
    clock, first = s.clock, s.pool_scalar[0]
    if first[_SEEN_PASS] != clock[PASS]:
        first[_SEEN_PASS] = clock[PASS]
        first[_SEEN_LAYER] = -1
        for layer in range(s.layer_count.shape[0]):
            s.layer_count[layer, _STALE] += s.layer_count[layer, _CURRENT]
            s.layer_count[layer, _CURRENT] = 0
        s.pool_scalar[:, _STALE_LEFT] = 0
    while first[_SEEN_LAYER] < clock[LAYER]:
        first[_SEEN_LAYER] += 1
        layer = first[_SEEN_LAYER]
        s.pool_scalar[s.layer_pool[layer], _STALE_LEFT] += s.layer_count[layer, _STALE]


@inlined
def _forget(s: Any, x: int, pool: int) -> None:
    layer = s.layer_of[x]
    if s.last_use[x] == s.clock[PASS]:
        s.layer_count[layer, _CURRENT] -= 1
    else:
        s.layer_count[layer, _STALE] -= 1
        if layer <= s.clock[LAYER]:
            s.pool_scalar[pool, _STALE_LEFT] -= 1
    unlink(s.chain, x)


@inlined
def _become_current(s: Any, x: int, pool: int) -> None:
    s.last_use[x] = s.clock[PASS]
    s.layer_count[s.layer_of[x], _CURRENT] += 1
    append(s.chain, x, s.slot_of.shape[0] + pool)


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    _forget(s, x, pool)
    _become_current(s, x, pool)
    s.use_count[x] = -1


@inlined
def insert(s: Any, x: int, pool: int, for_next_pass: bool) -> None:
    _become_current(s, x, pool)
    s.use_count[x] = s.clock[PASS] if for_next_pass else -1


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    _forget(s, x, pool)


@inlined
def _class_of(s: Any, x: int) -> int:
    """0 stale-left, 1 stale-right, 2 current-left, 3 current-right; without sides 0 stale, 2 current."""
    right = s.parameter[SIDES] != 0 and (s.layer_of[x] > s.clock[LAYER] or s.use_count[x] == s.clock[PASS])
    return (2 if s.last_use[x] == s.clock[PASS] else 0) + (1 if right else 0)


@inlined
def victim(s: Any, pool: int) -> int:
    sentinel = s.slot_of.shape[0] + pool
    if s.parameter[DISTANCE] != 0:
        return _victim_by_distance(s, sentinel)
    goal = 0 if s.pool_scalar[pool, _STALE_LEFT] > 0 else 1
    best, best_class = -1, 4
    x = s.chain[NEXT, sentinel]
    while x != sentinel:
        if not s.pin[x]:
            kind = _class_of(s, x)
            if kind < best_class:
                best, best_class = x, kind
                if kind <= goal:
                    return best
            if kind >= 2 and best_class <= 2:
                return best  # from here on all are current: nothing better follows
        x = s.chain[NEXT, x]
    return best


@compiled
def _victim_by_distance(s: Any, sentinel: int) -> int:
    best, best_class, best_distance = -1, 4, -1
    x = s.chain[NEXT, sentinel]
    while x != sentinel:
        if not s.pin[x]:
            kind, distance = _class_of(s, x), s.layer_of[x]  # left and right alike: the higher layer goes first
            if s.use_count[x] == s.clock[PASS]:
                distance += s.layer_count.shape[0]  # fetched for the next pass: a whole round farther ahead
            if kind < best_class or (kind == best_class and distance > best_distance):
                best, best_class, best_distance = x, kind, distance
        x = s.chain[NEXT, x]
    return best
