"""The fast engine: the timeline of a replay as compiled loops. Equal to the SimPy engine to the nanosecond.

At equal times: copies complete, then computations, then decisions take effect, then idle servers and the compute
stream start what is next. `docs/engine.md` gives the rules; `reference.py` is the same machine as processes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cache.core import ACCESS, FUSED
from ..cache.ledger import HIT, HITS, KIND_LATE, LATE, LOWERED, ON_HOST, PREFETCH_LATE, SUBSTITUTED
from ..cache.plan import EXPERT, FETCH_SLOT, FETCHED, FETCHES, KIND, MEMBERS, MISSED, PLACE, TOKENS, WAIT
from ..cache.state import LAYER_OF, slot_of
from ..compiled import called, compiled, inlined
from .counting import decide_event
from .link import (
    DEMAND,
    OPEN,
    PREFETCH,
    STARTED,
    UNTIL,
    WAITING_MEMBER,
    advance,
    dispatch,
    finish_storage,
    is_under_way,
    land,
    next_completion,
    promote,
    request,
    withdraw,
)

# Columns of Machine.time
NOW, PATH_TIME, COMPUTE_BUSY, HOST_BUSY, STALL = range(5)
# Rows of Machine.pass_ns
BEFORE, RESIDENT, AFTER = range(3)
# Rows of Machine.order
WAITER, READY = range(2)
# Rows of Record.event
KNOWN, END, HITS_OF_EVENT, LATE_OF_EVENT = range(4)
# Rows of Record.of_pass
START_OF_PASS, END_OF_PASS, HITS_OF_PASS = range(3)
_RESIDENT_WORK = -2  # on the compute stream: the work that needs no routed expert
_IDLE = -1


class Machine(NamedTuple):
    """Costs, and the state of the compute stream. P passes, C layer classes, L layers, N experts a layer."""

    layer_class: NDArray[np.int32]
    """[L]"""
    pass_ns: NDArray[np.int64]
    """[3, P, C] before the experts are known, work that needs no routed expert, after the experts."""
    expert_ns: NDArray[np.int64]
    """[C, tokens + 1]"""
    host_ns: NDArray[np.int64]
    """[C, tokens + 1] one expert on the host cores, or empty where no miss policy computes there."""
    may_not_load: bool
    """The miss policy may do something else than load."""
    decision_ns: int
    decision_beside: bool
    """Decisions run beside the compute stream, not in series with it."""
    order: NDArray[np.int32]
    """[2, N] member whose copy may start when this one is computed (−1 none); members in the order in which they
    became computable."""
    time: NDArray[np.int64]
    """[5]"""


class Record(NamedTuple):
    """Where times go."""

    of_pass: NDArray[np.int64]
    """[3, P] start, end, hits."""
    layer_stall: NDArray[np.int64]
    """[L]"""
    event: NDArray[np.int64]
    """[4, P · L], or [4, 0] when nobody asks: when the experts are known, end, hits, late."""


@inlined
def _mark_late(plan: Any, i: int, layer: int, counts: Any, layer_counts: Any) -> None:
    """A member counted as a hit turns out to be under way: move it to the late misses."""
    counts[HITS] -= 1
    counts[LATE] += 1
    counts[PREFETCH_LATE] += 1
    layer_counts[layer, HIT] -= 1
    layer_counts[layer, KIND_LATE] += 1
    plan.member[KIND, i] = KIND_LATE


@inlined
def _ask(c: Any, plan: Any, i: int, layer: int) -> None:
    place = plan.member[PLACE, i]
    if plan.member[KIND, i] == LOWERED:
        layer += c.hop.shape[1] // 2
    request(c, place, plan.member[EXPERT, i], layer, DEMAND)
    c.place[WAITING_MEMBER, place] = i


@inlined
def _prefetch(c: Any, s: Any, plan: Any) -> None:
    for f in range(plan.size[FETCHES]):
        x = plan.fetch[FETCHED, f]
        request(c, plan.fetch[FETCH_SLOT, f], x, s.expert[LAYER_OF, x], PREFETCH)


@inlined
def _issue(c: Any, s: Any, plan: Any, layer: int) -> None:
    """Decisions take effect: late members are promoted, then misses ask for copies, then prefetches."""
    for i in range(plan.size[MEMBERS] if c.total[OPEN] > 0 else 0):
        if plan.member[KIND, i] == KIND_LATE and c.place[WAITING_MEMBER, plan.member[PLACE, i]] == i:
            promote(c, plan.member[PLACE, i])
    for j in range(plan.size[MISSED]):
        i = plan.missed[j]
        if plan.member[KIND, i] > KIND_LATE and plan.member[WAIT, i] < 0:
            _ask(c, plan, i, layer)
    _prefetch(c, s, plan)


@called
def _ready_without_copy(m: Any, plan: Any) -> tuple[int, int]:
    """Where a miss policy may do something else than load: hits and stand-ins are ready; the members of the device."""
    ready, on_device = 0, 0
    for i in range(plan.size[MEMBERS]):
        on_device += plan.member[KIND, i] >= SUBSTITUTED
        if SUBSTITUTED <= plan.member[KIND, i] <= HIT:
            m.order[READY, ready] = i
            ready += 1
    return ready, on_device


@inlined
def _run_together(
    m: Any, c: Any, s: Any, plan: Any, start: int, issue_at: int, resident_ns: int, layer: int, layer_class: int
) -> int:
    """Compute all members of an event; return when the last is done (and decided).

    Where no copy waits for a computation, the compute stream need not be followed step by step: it is through with
    what is ready at `free_at`, and whoever lands later is computed at the later of the two.
    """
    free_at, waiting = start + resident_ns, 0
    busy = resident_ns
    for i in range(plan.size[MEMBERS]):
        duration = m.expert_ns[layer_class, plan.member[TOKENS, i]]
        busy += duration
        if plan.member[KIND, i] == HIT:
            free_at += duration
        else:
            waiting += 1
    m.time[COMPUTE_BUSY] += busy
    now, issued = start, issue_at == start
    if issued:
        _issue(c, s, plan, layer)
    while waiting > 0 or not issued:
        dispatch(c, now)
        now = next_completion(c)
        if not issued:
            now = min(now, issue_at)
        for engine in range(c.server.shape[1] - 1):
            if c.server[UNTIL, engine] == now:
                place = land(c, engine)
                i = c.place[WAITING_MEMBER, place]
                if i >= 0 and plan.member[EXPERT, i] == c.place[STARTED, place]:
                    c.place[WAITING_MEMBER, place] = -1
                    free_at = max(free_at, now) + m.expert_ns[layer_class, plan.member[TOKENS, i]]
                    waiting -= 1
                c.place[STARTED, place] = -1
        finish_storage(c, now)
        if not issued and issue_at == now:
            _issue(c, s, plan, layer)
            issued = True
    end = max(free_at, now)
    advance(c, end, now)
    return end


@called
def _run_members(
    m: Any, c: Any, s: Any, plan: Any, start: int, issue_at: int, resident_ns: int, layer: int, layer_class: int
) -> int:
    """The same one computation after another, for events in which copies wait for computations."""
    members = plan.size[MEMBERS]
    head, tail, left, busy = 0, 0, members, resident_ns
    for i in range(members):
        if plan.member[KIND, i] == HIT:
            m.order[READY, tail] = i
            tail += 1
    if m.may_not_load:
        tail, left = _ready_without_copy(m, plan)
    issued = False
    now = start
    on_stream, until = _RESIDENT_WORK, start + resident_ns
    if issue_at == now:
        _issue(c, s, plan, layer)
        issued = True
    while True:
        # what ends now ends, and what takes no time ends at once, before any server starts something
        while on_stream == _IDLE or until == now:
            if on_stream >= 0:
                left -= 1
                follower = m.order[WAITER, on_stream]
                if follower >= 0:
                    m.order[WAITER, on_stream] = -1
                    _ask(c, plan, follower, layer)
            on_stream = _IDLE
            if head == tail:
                break
            on_stream = m.order[READY, head]
            head += 1
            duration = m.expert_ns[layer_class, plan.member[TOKENS, on_stream]]
            until = now + duration
            busy += duration
        if not issued and issue_at == now:
            _issue(c, s, plan, layer)
            issued = True
        if left == 0 and on_stream == _IDLE and issued:
            m.time[COMPUTE_BUSY] += busy
            return now
        dispatch(c, now)
        now = next_completion(c)
        if on_stream != _IDLE:
            now = min(now, until)
        if not issued:
            now = min(now, issue_at)
        for engine in range(c.server.shape[1] - 1):
            if c.server[UNTIL, engine] == now:
                place = land(c, engine)
                i = c.place[WAITING_MEMBER, place]
                if i >= 0 and plan.member[EXPERT, i] == c.place[STARTED, place]:
                    c.place[WAITING_MEMBER, place] = -1
                    m.order[READY, tail] = i
                    tail += 1
                c.place[STARTED, place] = -1
        finish_storage(c, now)


@called
def _wait_for_host(m: Any, c: Any, plan: Any, decided: int, end: int, layer_class: int) -> int:
    """The host cores compute their members one after another from `decided` on; return when the whole event is done."""
    done = decided
    for i in range(plan.size[MEMBERS]):
        if plan.member[KIND, i] == ON_HOST:
            done += m.host_ns[layer_class, plan.member[TOKENS, i]]
    m.time[HOST_BUSY] += done - decided
    if done > end:
        advance(c, done, end)
        return done
    return end


@called
def _run_serial(
    m: Any,
    c: Any,
    s: Any,
    plan: Any,
    start: int,
    resident_ns: int,
    layer: int,
    layer_class: int,
    counts: Any,
    layer_counts: Any,
) -> int:
    """The `access` contract: one member after another, each copied when its turn comes; prefetches at the end."""
    now = start + resident_ns
    m.time[COMPUTE_BUSY] += resident_ns
    advance(c, now, start)
    for i in range(plan.size[MEMBERS]):
        place, x = plan.member[PLACE, i], plan.member[EXPERT, i]
        if plan.member[KIND, i] == HIT and is_under_way(c, place, x):
            _mark_late(plan, i, layer, counts, layer_counts)
            promote(c, place)
        elif plan.member[KIND, i] != HIT:
            request(c, place, x, layer, DEMAND)
        while plan.member[KIND, i] != HIT and is_under_way(c, place, x):
            dispatch(c, now)
            now = next_completion(c)
            for engine in range(c.server.shape[1] - 1):
                if c.server[UNTIL, engine] == now:
                    c.place[STARTED, land(c, engine)] = -1
            finish_storage(c, now)
        duration = m.expert_ns[layer_class, plan.member[TOKENS, i]]
        m.time[COMPUTE_BUSY] += duration
        advance(c, now + duration, now)
        now += duration
    _prefetch(c, s, plan)
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
    counts: Any,
    layer_counts: Any,
    record: Any,
    hits_before: int,
) -> None:
    """Move the clock over one event whose decisions stand in `plan`; `hits_before` had been counted before it."""
    kind = m.layer_class[layer]
    before_ns, resident_ns = m.pass_ns[BEFORE, pass_number, kind], m.pass_ns[RESIDENT, pass_number, kind]
    after_ns = m.pass_ns[AFTER, pass_number, kind]
    arrived = m.time[NOW] + before_ns
    m.time[HOST_BUSY] += m.decision_ns
    decided = arrived + m.decision_ns
    known = arrived if m.decision_beside else decided
    advance(c, known, m.time[PATH_TIME])
    busy_before = m.time[COMPUTE_BUSY]
    late_before = counts[LATE]
    if contract == ACCESS:
        end = _run_serial(m, c, s, plan, known, resident_ns, layer, kind, counts, layer_counts)
        if end < decided:
            advance(c, decided, end)
            end = decided
    else:
        follows = m.may_not_load
        for i in range(plan.size[MEMBERS] if c.total[OPEN] > 0 else 0):
            place = plan.member[PLACE, i]
            if plan.member[KIND, i] == HIT and is_under_way(c, place, plan.member[EXPERT, i]):
                _mark_late(plan, i, layer, counts, layer_counts)
                c.place[WAITING_MEMBER, place] = i
        for j in range(plan.size[MISSED]):
            i = plan.missed[j]
            if plan.member[WAIT, i] >= 0:
                m.order[WAITER, plan.member[WAIT, i]] = i
                follows = True
        if follows:
            end = _run_members(m, c, s, plan, known, decided, resident_ns, layer, kind)
        else:
            end = _run_together(m, c, s, plan, known, decided, resident_ns, layer, kind)
        if m.may_not_load:
            end = _wait_for_host(m, c, plan, decided, end, kind)
        if contract == FUSED:
            for i in range(plan.size[MEMBERS]):
                slot = slot_of(s, plan.member[EXPERT, i])
                if KIND_LATE < plan.member[KIND, i] < LOWERED and slot >= 0:
                    withdraw(c, slot)
    stall = end - known - (m.time[COMPUTE_BUSY] - busy_before)
    m.time[STALL] += stall
    record.layer_stall[layer] += stall
    m.time[COMPUTE_BUSY] += before_ns + after_ns
    m.time[PATH_TIME] = end
    m.time[NOW] = end + after_ns
    if record.event.shape[1] > 0:
        event = pass_number * m.layer_class.shape[0] + layer
        record.event[KNOWN, event] = known
        record.event[END, event] = m.time[NOW]
        record.event[LATE_OF_EVENT, event] = counts[LATE] - late_before
        record.event[HITS_OF_EVENT, event] = counts[HITS] - hits_before


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
        record.of_pass[START_OF_PASS, pass_number] = m.time[NOW]
        record.of_pass[HITS_OF_PASS, pass_number] = -counts[HITS]
        for layer in range(layers):
            hits_before = counts[HITS]
            used = decide_event(
                rules, s, plan, wanted, block, index, layer, next_uses, used, counts, layer_counts
            )
            time_event(
                rules.contract, m, c, s, plan, pass_number, layer, counts, layer_counts, record, hits_before
            )
        record.of_pass[END_OF_PASS, pass_number] = m.time[NOW]
        record.of_pass[HITS_OF_PASS, pass_number] += counts[HITS]
    advance(c, m.time[NOW], m.time[PATH_TIME])
    m.time[PATH_TIME] = m.time[NOW]
    return used
