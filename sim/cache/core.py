"""The cache core: what one event does to residency and to the ledger, under each of the three contracts.

It owns residency; policies only say who goes. Nothing here knows the time: of all counts only `late` depends on
it, and the engines find that one. `docs/engine.md` states every rule below in prose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled, inlined
from . import ledger as k
from .state import EVENT, LAYER, PASS
from .switch import admits, begin_event, may_stream, on_evict, on_hit, on_insert, prefers, victim

SLOTS, FUSED, ACCESS = range(3)
CONTRACTS = {"slots": SLOTS, "fused": FUSED, "access": ACCESS}

# How a miss finds a place
_FOUND, _STREAMED, _ALL_PINNED = range(3)
# Columns of Plan.size
MEMBERS, FETCHES, EVICTED = range(3)


class Plan(NamedTuple):
    """What one event decided: arrays that are filled anew each time."""

    member: NDArray[np.int32]  # [U] experts of the event: ascending, or as written under `access`
    tokens: NDArray[np.int32]  # [U] tokens of the pass that chose it
    kind: NDArray[np.uint8]  # [U] HIT or a kind of miss
    place: NDArray[np.int32]  # [U] slot; from the number of slots on, a place in the staging buffer
    wait: NDArray[np.int32]  # [U] member whose computation must end before this copy may start, −1: none
    fetch: NDArray[np.int32]  # [F] experts prefetched
    fetch_slot: NDArray[np.int32]  # [F]
    evicted: NDArray[np.int32]  # [V] experts evicted, in order
    size: NDArray[np.int64]  # [3] members, fetches, evicted


def new_plan(num_experts: int, max_fetch: int, slots: int) -> Plan:
    return Plan(
        member=np.zeros(num_experts, np.int32),
        tokens=np.zeros(num_experts, np.int32),
        kind=np.zeros(num_experts, np.uint8),
        place=np.zeros(num_experts, np.int32),
        wait=np.zeros(num_experts, np.int32),
        fetch=np.zeros(max_fetch, np.int32),
        fetch_slot=np.zeros(max_fetch, np.int32),
        evicted=np.zeros(num_experts + max_fetch + slots, np.int32),
        size=np.zeros(3, np.int64),
    )


@inlined
def collect(
    experts: Any, low: int, high: int, layer: int, num_experts: int, sort: bool, seen: Any, plan: Plan
) -> int:
    """Fill `plan.member` and `plan.tokens` with the union of rows low … high−1 of a layer; return the logical count.

    `seen` is [N] zeros, and is again when this returns.
    """
    found, logical = 0, 0
    for row in range(low, high):
        for column in range(experts.shape[2]):
            expert = experts[row, layer, column]
            if expert < 0:
                continue
            logical += 1
            if seen[expert] == 0:
                plan.member[found] = expert
                found += 1
            seen[expert] += 1
    if sort:
        if found <= 24:
            for i in range(1, found):
                value, j = plan.member[i], i - 1
                while j >= 0 and plan.member[j] > value:
                    plan.member[j + 1] = plan.member[j]
                    j -= 1
                plan.member[j + 1] = value
        else:
            found = 0
            for expert in range(num_experts):
                if seen[expert]:
                    plan.member[found] = expert
                    found += 1
    for i in range(found):
        expert = plan.member[i]
        plan.tokens[i] = seen[expert]
        seen[expert] = 0
        plan.member[i] = layer * num_experts + expert
    plan.size[MEMBERS] = found
    return logical


@inlined
def _evict(code: int, s: Any, x: int, counts: Any, plan: Plan) -> None:
    pool, slot = s.pool_of[x], s.slot_of[x]
    on_evict(code, s, x, pool)
    s.slot_of[x] = -1
    s.occupant[slot] = -1
    s.free_slots[s.slot_start[pool] + s.free_count[pool]] = slot
    s.free_count[pool] += 1
    s.used[pool] -= s.size[x]
    s.evict_pass[x] = s.clock[PASS]
    counts[k.EVICTIONS] += 1
    counts[k.PREFETCH_EVICTED_UNUSED] += s.unused_prefetch[x]
    s.unused_prefetch[x] = 0
    plan.evicted[plan.size[EVICTED]] = x
    plan.size[EVICTED] += 1


@inlined
def insert(code: int, s: Any, x: int, for_next_pass: bool, counts: Any) -> int:
    """Give x a slot of its pool, which must have room; return the slot."""
    pool = s.pool_of[x]
    s.free_count[pool] -= 1
    slot = s.free_slots[s.slot_start[pool] + s.free_count[pool]]
    s.slot_of[x] = slot
    s.occupant[slot] = x
    s.used[pool] += s.size[x]
    counts[k.INSERTIONS] += 1
    on_insert(code, s, x, pool, for_next_pass)
    return slot


@compiled
def _make_room(code: int, s: Any, x: int, counts: Any, plan: Plan) -> int:
    """Evict until x fits into its pool."""
    if not admits(code, s, x) or s.size[x] > s.capacity[s.pool_of[x]]:
        return _STREAMED
    pool = s.pool_of[x]
    while s.used[pool] + s.size[x] > s.capacity[pool]:
        y = victim(code, s, pool)
        if y < 0:
            return _ALL_PINNED
        if not prefers(code, s, x, y):
            return _STREAMED
        _evict(code, s, y, counts, plan)
    return _FOUND


@inlined
def _kind_of_miss(s: Any, x: int) -> int:
    if s.evict_pass[x] == s.clock[PASS]:
        return k.KIND_COLLISION
    return k.KIND_CAPACITY if s.moved[x] else k.KIND_COMPULSORY


@inlined
def _count(s: Any, x: int, kind: int, counts: Any, layer_counts: Any) -> None:
    """Enter one classified access into the ledger."""
    column = k.HITS if kind == k.HIT else k.LATE + kind - k.KIND_LATE
    counts[k.ACCESSES] += 1
    counts[column] += 1
    layer_counts[s.layer_of[x], kind] += 1
    if kind == k.HIT:
        counts[k.PREFETCH_USED] += s.unused_prefetch[x]
        s.unused_prefetch[x] = 0
    else:
        counts[k.MOVED] += 1
        counts[k.DEMAND_BYTES] += s.size[x]
        s.moved[x] = 1


@inlined
def _member_index(plan: Plan, x: int) -> int:
    for i in range(plan.size[MEMBERS]):
        if plan.member[i] == x:
            return i
    return -1


@inlined
def _latest_at(plan: Plan, i: int, place: int) -> int:
    """The streamed member before i that used the same place of the staging buffer, −1: none."""
    for j in range(i - 1, -1, -1):
        if plan.place[j] == place:
            return j
    return -1


@inlined
def _pin_residents(s: Any, plan: Plan, value: int) -> None:
    for i in range(plan.size[MEMBERS]):
        if s.slot_of[plan.member[i]] >= 0:
            s.pin[plan.member[i]] = value


@inlined
def _classify(code: int, s: Any, plan: Plan, counts: Any, layer_counts: Any) -> None:
    """Classify all members against the state now, pin the resident ones and let the policy know of the hits."""
    for i in range(plan.size[MEMBERS]):
        x = plan.member[i]
        plan.wait[i] = -1
        plan.place[i] = s.slot_of[x]
        plan.kind[i] = k.HIT if plan.place[i] >= 0 else _kind_of_miss(s, x)
    for i in range(plan.size[MEMBERS]):
        x = plan.member[i]
        _count(s, x, plan.kind[i], counts, layer_counts)
        if plan.kind[i] == k.HIT:
            s.pin[x] = 1
            on_hit(code, s, x, s.pool_of[x])


@inlined
def _slots_event(code: int, s: Any, plan: Plan, staging: int, counts: Any, layer_counts: Any) -> None:
    """Every miss must sit in a slot to be computed, or in the staging buffer if the policy streams it.

    When all slots hold members of this event, a miss takes the slot of one that comes before it in the order of
    computation (a wave); from then on the policy chooses among those.
    """
    _classify(code, s, plan, counts, layer_counts)
    slots, streamed, in_waves = s.occupant.shape[0], 0, False
    for i in range(plan.size[MEMBERS]):
        if plan.kind[i] == k.HIT:
            continue
        x = plan.member[i]
        before = plan.size[EVICTED]
        outcome = _make_room(code, s, x, counts, plan)
        if outcome == _ALL_PINNED and not may_stream(code):
            in_waves = True
            _pin_residents(s, plan, 0)
            outcome = _make_room(code, s, x, counts, plan)
        if outcome == _FOUND:
            if in_waves and plan.size[EVICTED] > before:
                plan.wait[i] = _member_index(plan, plan.evicted[plan.size[EVICTED] - 1])
                counts[k.WAVES] += plan.wait[i] >= 0
            plan.place[i] = insert(code, s, x, False, counts)
            s.pin[x] = 0 if in_waves else 1
        else:
            counts[k.BYPASSES] += 1
            plan.place[i] = slots + streamed % staging
            plan.wait[i] = _latest_at(plan, i, plan.place[i])
            streamed += 1
    _pin_residents(s, plan, 1)


@compiled
def _fused_event(code: int, s: Any, plan: Plan, counts: Any, layer_counts: Any) -> None:
    """Misses stream through a workspace outside the cache; `admit_after` decides later who stays."""
    _classify(code, s, plan, counts, layer_counts)
    slots, streamed = s.occupant.shape[0], 0
    for i in range(plan.size[MEMBERS]):
        if plan.kind[i] != k.HIT:
            plan.place[i] = slots + streamed
            streamed += 1


@compiled
def _admit_after(code: int, s: Any, plan: Plan, counts: Any) -> None:
    """End of a fused event: each missed expert, in ascending id, is admitted or let go."""
    for i in range(plan.size[MEMBERS]):
        x = plan.member[i]
        if plan.kind[i] == k.HIT or s.slot_of[x] >= 0:
            continue
        if _make_room(code, s, x, counts, plan) == _FOUND:
            insert(code, s, x, False, counts)
        else:
            counts[k.BYPASSES] += 1


@compiled
def access_one(code: int, s: Any, plan: Plan, i: int, counts: Any, layer_counts: Any) -> None:
    """One access of the `access` contract: classified, admitted and evicted for by itself."""
    x = plan.member[i]
    plan.wait[i] = -1
    plan.place[i] = s.slot_of[x]
    plan.kind[i] = k.HIT if plan.place[i] >= 0 else _kind_of_miss(s, x)
    _count(s, x, plan.kind[i], counts, layer_counts)
    if plan.kind[i] == k.HIT:
        on_hit(code, s, x, s.pool_of[x])
    elif _make_room(code, s, x, counts, plan) == _FOUND:
        plan.place[i] = insert(code, s, x, False, counts)
    else:
        counts[k.BYPASSES] += 1
        plan.place[i] = s.occupant.shape[0]


@inlined
def _prefetch(
    code: int, s: Any, plan: Plan, wanted: Any, first_next_pass: int, many: int, budget: int, counts: Any
) -> None:
    """Reserve slots for what a prefetcher wants, in its order, within a byte budget (−1: no limit).

    Members of the event, and what this same decision fetched, are pinned. From index `first_next_pass` on the
    wanted experts are for the next pass.
    """
    spent = 0
    for i in range(many):
        x = wanted[i]
        if s.slot_of[x] >= 0:
            continue
        if budget >= 0 and spent + s.size[x] > budget:
            break
        if _make_room(code, s, x, counts, plan) != _FOUND:
            counts[k.PREFETCH_REFUSED] += 1
            continue
        spent += s.size[x]
        fetched = plan.size[FETCHES]
        plan.fetch[fetched] = x
        plan.fetch_slot[fetched] = insert(code, s, x, i >= first_next_pass, counts)
        plan.size[FETCHES] += 1
        s.pin[x] = 1
        s.moved[x] = 1
        s.unused_prefetch[x] = 1
        counts[k.PREFETCH_ISSUED] += 1
        counts[k.MOVED] += 1
        counts[k.PREFETCH_BYTES] += s.size[x]
    for i in range(plan.size[FETCHES]):
        s.pin[plan.fetch[i]] = 0


@inlined
def step(
    code: int, contract: int, s: Any, plan: Plan, event: int, pass_number: int, layer: int, next_uses: Any, staging: int,
    wanted: Any, first_next_pass: int, many: int, budget: int, counts: Any, layer_counts: Any,
) -> None:  # fmt: skip
    """One event: classify `plan`'s members, place the misses, prefetch, and admit under the given contract.

    `next_uses` is [members] (event of each member's next use) or empty without future knowledge.
    """
    s.clock[EVENT], s.clock[PASS], s.clock[LAYER] = event, pass_number, layer
    plan.size[FETCHES] = 0
    plan.size[EVICTED] = 0
    begin_event(code, s)
    if contract == ACCESS:
        for i in range(plan.size[MEMBERS]):
            if next_uses.shape[0] > 0:
                s.next_use[plan.member[i]] = next_uses[i]
            access_one(code, s, plan, i, counts, layer_counts)
        _prefetch(code, s, plan, wanted, first_next_pass, many, budget, counts)
        return
    if next_uses.shape[0] > 0:
        for i in range(plan.size[MEMBERS]):
            s.next_use[plan.member[i]] = next_uses[i]
    if contract == SLOTS:
        _slots_event(code, s, plan, staging, counts, layer_counts)
    else:
        _fused_event(code, s, plan, counts, layer_counts)
    _prefetch(code, s, plan, wanted, first_next_pass, many, budget, counts)
    for i in range(plan.size[MEMBERS]):
        s.pin[plan.member[i]] = 0
    if contract == FUSED:
        _admit_after(code, s, plan, counts)
