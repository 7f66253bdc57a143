"""The fast engine: the timeline of a replay as compiled loops. Equal to the SimPy engine to the nanosecond.

At equal times: copies complete, then computations, then decisions take effect, then idle servers and the compute
stream start what is next. `docs/engine.md` gives the rules; `reference.py` is the same machine as processes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cache.core import ACCESS, FETCHES, FUSED, MEMBERS
from ..cache.ledger import HIT, HITS, KIND_LATE, LATE, PREFETCH_LATE
from ..compiled import compiled, inlined
from .counting import decide_event
from .link import (
    DEMAND,
    PREFETCH,
    advance,
    complete_one,
    dispatch,
    is_under_way,
    landed_expert,
    next_completion,
    promote,
    request,
    withdraw,
)

# Columns of Machine.time
NOW, PATH_TIME, COMPUTE_BUSY, HOST_BUSY, STALL = range(5)
_RESIDENT = -2  # on the compute stream: the work that needs no routed expert
_IDLE = -1


class Machine(NamedTuple):
    """Costs, and the state of the compute stream. P passes, C layer classes, J places, N experts a layer."""

    layer_class: NDArray[np.int32]
    before_ns: NDArray[np.int64]  # [P, C]
    resident_ns: NDArray[np.int64]  # [P, C]
    expert_ns: NDArray[np.int64]  # [C, tokens + 1]
    after_ns: NDArray[np.int64]  # [P, C]
    decision_ns: int
    decision_beside: bool  # decisions run beside the compute stream, not in series with it
    member_at: NDArray[np.int32]  # [J] member of the present event that waits for a landing there, −1 none
    waiter: NDArray[np.int32]  # [N] member whose copy may start when this one is computed, −1 none
    ready: NDArray[np.int32]  # [N] members in the order in which they became computable
    time: NDArray[np.int64]  # [5]


class Record(NamedTuple):
    """Where times go. Event arrays may be empty when nobody asks for them."""

    pass_start: NDArray[np.int64]  # [P]
    pass_end: NDArray[np.int64]  # [P]
    layer_stall: NDArray[np.int64]  # [L]
    event_known: NDArray[np.int64]  # [P · L] or empty: the experts are known
    event_end: NDArray[np.int64]  # [P · L] or empty
    event_hits: NDArray[np.int64]  # [P · L] or empty
    event_late: NDArray[np.int64]  # [P · L] or empty


@inlined
def _mark_late(s: Any, plan: Any, i: int, counts: Any, layer_counts: Any) -> None:
    """A member counted as a hit turns out to be under way: move it to the late misses."""
    counts[HITS] -= 1
    counts[LATE] += 1
    counts[PREFETCH_LATE] += 1
    layer = s.layer_of[plan.member[i]]
    layer_counts[layer, HIT] -= 1
    layer_counts[layer, KIND_LATE] += 1
    plan.kind[i] = KIND_LATE


@inlined
def _issue(contract: int, m: Any, c: Any, s: Any, plan: Any) -> None:
    """Decisions take effect: late members are promoted, then misses ask for copies, then prefetches."""
    if contract != ACCESS:
        for i in range(plan.size[MEMBERS]):
            if plan.kind[i] == KIND_LATE and m.member_at[plan.place[i]] == i:
                promote(c, plan.place[i])
        for i in range(plan.size[MEMBERS]):
            if plan.kind[i] > KIND_LATE and plan.wait[i] < 0:
                _ask(m, c, s, plan, i)
    for f in range(plan.size[FETCHES]):
        withdraw(c, plan.fetch_slot[f], s.size)
        request(c, plan.fetch_slot[f], plan.fetch[f], PREFETCH)


@inlined
def _ask(m: Any, c: Any, s: Any, plan: Any, i: int) -> None:
    place = plan.place[i]
    withdraw(c, place, s.size)
    m.member_at[place] = i
    request(c, place, plan.member[i], DEMAND)


@inlined
def _run_members(
    contract: int,
    m: Any,
    c: Any,
    s: Any,
    plan: Any,
    start: int,
    issue_at: int,
    resident_ns: int,
    layer_class: int,
    num_experts: int,
) -> int:
    """Compute all members of an event as they become available; return when the last is done (and decided)."""
    members = plan.size[MEMBERS]
    head, tail, left = 0, 0, members
    for i in range(members):
        if plan.kind[i] == HIT:
            m.ready[tail] = i
            tail += 1
    issued = False
    now = start
    on_stream, until = _RESIDENT, start + resident_ns
    m.time[COMPUTE_BUSY] += resident_ns
    if issue_at == now:
        _issue(contract, m, c, s, plan)
        issued = True
    while True:
        # what ends now ends, and what takes no time ends at once, before any server starts something
        while on_stream == _IDLE or until == now:
            if on_stream >= 0:
                left -= 1
                follower = m.waiter[on_stream]
                if follower >= 0:
                    m.waiter[on_stream] = -1
                    _ask(m, c, s, plan, follower)
            on_stream = _IDLE
            if head == tail:
                break
            on_stream = m.ready[head]
            head += 1
            duration = m.expert_ns[layer_class, plan.tokens[on_stream]]
            until = now + duration
            m.time[COMPUTE_BUSY] += duration
        if not issued and issue_at == now:
            _issue(contract, m, c, s, plan)
            issued = True
        if left == 0 and on_stream == _IDLE and issued:
            return now
        dispatch(c, now, num_experts)
        now = next_completion(c)
        if on_stream != _IDLE:
            now = min(now, until)
        if not issued:
            now = min(now, issue_at)
        while True:
            place = complete_one(c, now)
            if place == -2:
                break
            if place < 0:
                continue
            x = landed_expert(c, place)
            i = m.member_at[place]
            if i >= 0 and plan.member[i] == x:
                m.member_at[place] = -1
                m.ready[tail] = i
                tail += 1


@compiled
def _run_serial(
    m: Any,
    c: Any,
    s: Any,
    plan: Any,
    start: int,
    resident_ns: int,
    layer_class: int,
    num_experts: int,
    counts: Any,
    layer_counts: Any,
) -> int:
    """The `access` contract: one member after another, each copied when its turn comes; prefetches at the end."""
    now = start + resident_ns
    m.time[COMPUTE_BUSY] += resident_ns
    advance(c, now, num_experts, start)
    for i in range(plan.size[MEMBERS]):
        place, x = plan.place[i], plan.member[i]
        if plan.kind[i] == HIT and is_under_way(c, place, x):
            _mark_late(s, plan, i, counts, layer_counts)
            promote(c, place)
        elif plan.kind[i] != HIT:
            withdraw(c, place, s.size)
            request(c, place, x, DEMAND)
        while plan.kind[i] != HIT and is_under_way(c, place, x):
            dispatch(c, now, num_experts)
            now = next_completion(c)
            while True:
                landed = complete_one(c, now)
                if landed == -2:
                    break
                if landed >= 0:
                    landed_expert(c, landed)
        duration = m.expert_ns[layer_class, plan.tokens[i]]
        m.time[COMPUTE_BUSY] += duration
        advance(c, now + duration, num_experts, now)
        now += duration
    _issue(ACCESS, m, c, s, plan)
    return now


@inlined
def time_event(
    contract: int,
    m: Any,
    c: Any,
    s: Any,
    plan: Any,
    pass_number: int,
    layer: int,
    num_experts: int,
    counts: Any,
    layer_counts: Any,
    record: Any,
) -> None:
    """Move the clock over one event whose decisions stand in `plan`."""
    kind = m.layer_class[layer]
    arrived = m.time[NOW] + m.before_ns[pass_number, kind]
    m.time[COMPUTE_BUSY] += m.before_ns[pass_number, kind]
    m.time[HOST_BUSY] += m.decision_ns
    decided = arrived + m.decision_ns
    known = arrived if m.decision_beside else decided
    advance(c, known, num_experts, m.time[PATH_TIME])
    resident_ns = m.resident_ns[pass_number, kind]
    busy_before = m.time[COMPUTE_BUSY]
    late_before = counts[LATE]
    if contract == ACCESS:
        begin = known
        end = _run_serial(m, c, s, plan, begin, resident_ns, kind, num_experts, counts, layer_counts)
        if end < decided:
            advance(c, decided, num_experts, end)
            end = decided
    else:
        for i in range(plan.size[MEMBERS]):
            if plan.kind[i] == HIT and is_under_way(c, plan.place[i], plan.member[i]):
                _mark_late(s, plan, i, counts, layer_counts)
                m.member_at[plan.place[i]] = i
            if plan.wait[i] >= 0:
                m.waiter[plan.wait[i]] = i
        end = _run_members(contract, m, c, s, plan, known, decided, resident_ns, kind, num_experts)
        if contract == FUSED:
            for i in range(plan.size[MEMBERS]):
                x = plan.member[i]
                if plan.kind[i] > KIND_LATE and s.slot_of[x] >= 0:
                    withdraw(c, s.slot_of[x], s.size)
    stall = end - known - (m.time[COMPUTE_BUSY] - busy_before)
    m.time[STALL] += stall
    record.layer_stall[layer] += stall
    m.time[COMPUTE_BUSY] += m.after_ns[pass_number, kind]
    m.time[PATH_TIME] = end
    m.time[NOW] = end + m.after_ns[pass_number, kind]
    if record.event_end.shape[0] > 0:
        event = pass_number * m.layer_class.shape[0] + layer
        record.event_known[event] = known
        record.event_end[event] = m.time[NOW]
        record.event_late[event] = counts[LATE] - late_before
        hits = 0
        for i in range(plan.size[MEMBERS]):
            hits += plan.kind[i] == HIT
        record.event_hits[event] = hits


@compiled
def time_block(
    rules: Any,
    m: Any,
    c: Any,
    s: Any,
    plan: Any,
    wanted: Any,
    block: Any,
    next_uses: Any,
    counts: Any,
    layer_counts: Any,
    record: Any,
) -> int:
    """Run the block; return how many of `next_uses` were used."""
    used, layers = 0, block.experts.shape[1]
    for index in range(block.begin, block.passes):
        pass_number = block.first_pass + index
        record.pass_start[pass_number] = m.time[NOW]
        for layer in range(layers):
            used = decide_event(
                rules, s, plan, wanted, block, index, layer, next_uses, used, counts, layer_counts
            )
            time_event(
                rules.contract,
                m,
                c,
                s,
                plan,
                pass_number,
                layer,
                rules.seen.shape[0],
                counts,
                layer_counts,
                record,
            )
        record.pass_end[pass_number] = m.time[NOW]
    advance(c, m.time[NOW], rules.seen.shape[0], m.time[PATH_TIME])
    m.time[PATH_TIME] = m.time[NOW]
    return used
