"""The cache core: what one event does to residency and to the ledger, under each of the three contracts.

It owns residency; policies only say who goes. Nothing here knows the time: of all counts only `late` depends on
it, and the engines find that one. `docs/engine.md` states every rule below in prose.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..compiled import called, compiled, inlined
from . import ledger as k
from .miss_switch import LOAD, SUBSTITUTE, release_substitutes, serve_misses
from .plan import EVICTED, EXPERT, FETCH_SLOT, FETCHED, FETCHES, KIND, MEMBERS, MISSED, PLACE, WAIT
from .state import (
    CAPACITY,
    EVENT,
    EVICT_PASS,
    FREE,
    FREE_COUNT,
    LAYER,
    LAYER_OF,
    MOVED,
    NEXT_USE,
    OCCUPANT,
    PASS,
    PIN,
    POOL_OF,
    SIZE,
    SLOT,
    SLOT_START,
    UNUSED_PREFETCH,
    USED,
    slot_of,
)
from .switch import admits, begin_event, may_stream, on_evict, on_hit, on_insert, prefers, victim

SLOTS, FUSED, ACCESS = range(3)
CONTRACTS = {"slots": SLOTS, "fused": FUSED, "access": ACCESS}

# What came of a wish for a slot, when it is not the slot's number
STREAMED, ALL_PINNED = -1, -2


@inlined
def _evict(code: int, s: Any, x: int, pool: int, counts: Any, plan: Any) -> None:
    slot = slot_of(s, x)
    on_evict(code, s, x, pool)
    s.expert[SLOT, x] = 0
    s.slot[OCCUPANT, slot] = -1
    s.slot[FREE, s.pool[SLOT_START, pool] + s.pool[FREE_COUNT, pool]] = slot
    s.pool[FREE_COUNT, pool] += 1
    s.pool[USED, pool] -= s.layer[SIZE, s.expert[LAYER_OF, x]]
    s.when[EVICT_PASS, x] = s.clock[PASS]
    counts[k.EVICTIONS] += 1
    counts[k.PREFETCH_EVICTED_UNUSED] += s.expert[UNUSED_PREFETCH, x]
    s.expert[UNUSED_PREFETCH, x] = 0
    plan.evicted[plan.size[EVICTED]] = x
    plan.size[EVICTED] += 1


@inlined
def _insert(code: int, s: Any, x: int, pool: int, size: int, for_next_pass: bool, counts: Any) -> int:
    s.pool[FREE_COUNT, pool] -= 1
    slot = s.slot[FREE, s.pool[SLOT_START, pool] + s.pool[FREE_COUNT, pool]]
    s.expert[SLOT, x] = slot + 1
    s.slot[OCCUPANT, slot] = x
    s.pool[USED, pool] += size
    counts[k.INSERTIONS] += 1
    on_insert(code, s, x, pool, for_next_pass)
    return slot


@inlined
def _bring_in(code: int, s: Any, x: int, size: int, for_next_pass: bool, counts: Any, plan: Any) -> int:
    """Give x a slot of its pool, evicting whom the policy says; return the slot, STREAMED or ALL_PINNED."""
    pool = s.expert[POOL_OF, x]
    if not admits(code, s, x) or size > s.pool[CAPACITY, pool]:
        return STREAMED
    while s.pool[USED, pool] + size > s.pool[CAPACITY, pool]:
        y = victim(code, s, pool, x)
        if y < 0:
            return ALL_PINNED
        if not prefers(code, s, x, y):
            return STREAMED
        _evict(code, s, y, pool, counts, plan)
    return _insert(code, s, x, pool, size, for_next_pass, counts)


@compiled
def load_first(code: int, s: Any, wanted: Any, counts: Any) -> int:
    """Put those of a static set that fit into their pools before the run, in the order given; return how many."""
    loaded = 0
    for i in range(wanted.shape[0]):
        x = wanted[i]
        pool, size = s.expert[POOL_OF, x], s.layer[SIZE, s.expert[LAYER_OF, x]]
        if s.pool[USED, pool] + size <= s.pool[CAPACITY, pool]:
            _insert(code, s, x, pool, size, False, counts)
            s.expert[MOVED, x] = 1
            counts[k.MOVED] += 1
            counts[k.FIRST_LOAD_BYTES] += size
            loaded += 1
    return loaded


@inlined
def _kind_of_miss(s: Any, x: int) -> int:
    if s.when[EVICT_PASS, x] == s.clock[PASS]:
        return k.KIND_COLLISION
    return k.KIND_CAPACITY if s.expert[MOVED, x] else k.KIND_COMPULSORY


@inlined
def _classify(
    code: int, s: Any, plan: Any, low: int, high: int, pin: int, next_uses: Any, counts: Any, layer_counts: Any
) -> None:
    """Enter members into the ledger, against the state now, let the policy know of hits, and pin those if asked."""
    hits, used, missed = 0, 0, 0
    for i in range(low, high):
        x = plan.member[EXPERT, i]
        if next_uses.shape[0] > 0:
            s.when[NEXT_USE, x] = next_uses[i]
        plan.member[PLACE, i] = slot_of(s, x)
        plan.member[WAIT, i] = -1
        if s.expert[SLOT, x]:
            plan.member[KIND, i] = k.HIT
            hits += 1
            used += s.expert[UNUSED_PREFETCH, x]
            s.expert[UNUSED_PREFETCH, x] = 0
            s.expert[PIN, x] = pin
            on_hit(code, s, x, s.expert[POOL_OF, x])
        else:
            kind = _kind_of_miss(s, x)
            plan.member[KIND, i] = kind
            plan.missed[missed] = i
            missed += 1
            counts[k.LATE + kind - k.KIND_LATE] += 1
            layer_counts[s.clock[LAYER], kind] += 1
            s.expert[MOVED, x] = 1
    plan.size[MISSED] = missed
    counts[k.HITS] += hits
    counts[k.PREFETCH_USED] += used
    counts[k.MOVED] += missed
    counts[k.DEMAND_BYTES] += missed * s.layer[SIZE, s.clock[LAYER]]
    layer_counts[s.clock[LAYER], k.HIT] += hits


@called
def _classify_one(code: int, s: Any, plan: Any, i: int, next_uses: Any, counts: Any, layer_counts: Any) -> None:
    _classify(code, s, plan, i, i + 1, 0, next_uses, counts, layer_counts)


@inlined
def _member_index(plan: Any, x: int) -> int:
    for i in range(plan.size[MEMBERS]):
        if plan.member[EXPERT, i] == x:
            return i
    return -1


@inlined
def _latest_at(plan: Any, i: int, place: int) -> int:
    """The streamed member before i that used the same place of the staging buffer, −1: none."""
    for j in range(i - 1, -1, -1):
        if plan.member[PLACE, j] == place:
            return j
    return -1


@inlined
def _pin_residents(s: Any, plan: Any, value: int) -> None:
    for i in range(plan.size[MEMBERS]):
        if s.expert[SLOT, plan.member[EXPERT, i]]:
            s.expert[PIN, plan.member[EXPERT, i]] = value


@inlined
def _settle_member(
    s: Any, plan: Any, i: int, place: int, evicted_before: int, in_waves: bool, counts: Any
) -> None:
    """A missed expert has got its slot."""
    if in_waves and plan.size[EVICTED] > evicted_before:
        plan.member[WAIT, i] = _member_index(plan, plan.evicted[plan.size[EVICTED] - 1])
        counts[k.WAVES] += plan.member[WAIT, i] >= 0
    plan.member[PLACE, i] = place
    if not in_waves:
        s.expert[PIN, plan.member[EXPERT, i]] = 1


@inlined
def _settle_fetch(s: Any, plan: Any, x: int, place: int, size: int, counts: Any) -> None:
    """A prefetched expert has got its slot; it keeps it through the rest of this decision."""
    fetched = plan.size[FETCHES]
    plan.fetch[FETCHED, fetched] = x
    plan.fetch[FETCH_SLOT, fetched] = place
    plan.size[FETCHES] += 1
    s.expert[PIN, x] = 1
    s.expert[MOVED, x] = 1
    s.expert[UNUSED_PREFETCH, x] = 1
    counts[k.PREFETCH_ISSUED] += 1
    counts[k.MOVED] += 1
    counts[k.PREFETCH_BYTES] += size


@inlined
def _stream_all(slots: int, plan: Any) -> None:
    """Each miss of a fused event has its place in the workspace."""
    streamed = 0
    for i in range(plan.size[MEMBERS]):
        if plan.member[KIND, i] > k.HIT:
            plan.member[PLACE, i] = slots + streamed
            streamed += 1


@inlined
def _unpin(s: Any, plan: Any) -> None:
    for i in range(plan.size[MEMBERS]):
        s.expert[PIN, plan.member[EXPERT, i]] = 0
    for f in range(plan.size[FETCHES]):
        s.expert[PIN, plan.fetch[FETCHED, f]] = 0


@inlined
def step(
    code: int, contract: int, s: Any, plan: Any, event: int, pass_number: int, layer: int, next_uses: Any, staging: int,
    wanted: Any, first_next_pass: int, many: int, budget: int, miss: int, limit: int, table: Any, together: Any,
    counts: Any, layer_counts: Any,
) -> None:  # fmt: skip
    """One event: classify `plan`'s members, place the misses and prefetch, as the contract says.

    `slots`: all members are classified and the resident ones pinned; every miss must sit in a slot to be computed, or
    in the staging buffer if the policy streams it. When all slots hold members of this event, a miss takes the slot
    of one that comes before it in the order of computation (a wave). Then prefetches.
    `fused`: classified likewise; misses stream through a workspace, prefetches are decided, and only then each miss is
    admitted or let go.
    `access`: each member is classified, admitted and evicted for by itself. Then prefetches.

    Prefetches are taken in the prefetcher's order within a byte budget (−1: no limit); from index `first_next_pass`
    on they are for the next pass. `next_uses` is [members] (event of each member's next use) or empty without future
    knowledge. `miss`, with its limit and table, says what else than loading may be done about a miss (not under `access`).
    One loop for all, so that a policy's code is part of it once: that is what makes it quick.
    """
    s.clock[EVENT], s.clock[PASS], s.clock[LAYER] = event, pass_number, layer
    members, slots = plan.size[MEMBERS], s.slot.shape[1]
    plan.size[FETCHES] = 0
    plan.size[EVICTED] = 0
    begin_event(code, s, plan)
    counts[k.ACCESSES] += members
    demands = members
    if contract != ACCESS:
        _classify(code, s, plan, 0, members, 1, next_uses, counts, layer_counts)
        demands = plan.size[MISSED]
    if miss != LOAD:
        serve_misses(miss, limit, table, together, admits(code, s, 0), s, plan, counts)
    if contract == FUSED:
        _stream_all(slots, plan)
    streamed, spent, in_waves, fetching = 0, 0, False, True
    first_fetch = 0 if contract == FUSED else demands
    for turn in range(demands + many):
        fetch, i = turn - first_fetch, turn if contract != FUSED else turn - many
        is_fetch = 0 <= fetch < many
        if fetch == 0 and in_waves:
            _pin_residents(s, plan, 1)
        if i == 0 and contract == FUSED:
            _unpin(s, plan)
        if is_fetch:
            x: Any = np.int64(wanted[fetch])
            size = s.layer[SIZE, s.expert[LAYER_OF, x]]
            if s.expert[SLOT, x] or not fetching:
                continue
            if budget >= 0 and spent + size > budget:
                fetching = False
                continue
        else:
            if contract == ACCESS:
                _classify_one(code, s, plan, i, next_uses, counts, layer_counts)
            else:
                i = plan.missed[i]
            x = np.int64(plan.member[EXPERT, i])
            size = s.layer[SIZE, layer]
            if plan.member[KIND, i] <= k.HIT or s.expert[SLOT, x]:
                continue
        evicted_before, place = plan.size[EVICTED], ALL_PINNED
        for _ in range(2 if is_fetch or plan.member[KIND, i] != k.LOWERED else 0):
            place = _bring_in(code, s, x, size, is_fetch and fetch >= first_next_pass, counts, plan)
            if place != ALL_PINNED or is_fetch or contract != SLOTS or may_stream(code):
                break
            in_waves = True
            _pin_residents(s, plan, 0)
        if is_fetch:
            if place >= 0:
                spent += size
                _settle_fetch(s, plan, x, place, size, counts)
            else:
                counts[k.PREFETCH_REFUSED] += 1
        elif place < 0:
            counts[k.BYPASSES] += 1
            if contract == SLOTS:
                plan.member[PLACE, i] = slots + streamed % staging
                plan.member[WAIT, i] = _latest_at(plan, i, plan.member[PLACE, i])
                streamed += 1
            elif contract == ACCESS:
                plan.member[PLACE, i] = slots
        elif contract == SLOTS:
            _settle_member(s, plan, i, place, evicted_before, in_waves, counts)
        elif contract == ACCESS:
            plan.member[PLACE, i] = place
    _unpin(s, plan)
    if miss == SUBSTITUTE:
        release_substitutes(s, plan)
