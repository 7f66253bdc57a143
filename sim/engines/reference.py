"""The reference engine: the machine of `docs/engine.md` as SimPy processes.

One process a copy engine, one for storage (`reference_copies.py`), one for the compute stream, which also follows the
decode loop. What each event decides comes from the same cache core as in the fast engine; the timeline is written
twice, here to be read and there to be quick, and a property test holds them equal to the nanosecond.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import simpy

from ..cache.core import ACCESS, FUSED
from ..cache.ledger import HIT, HITS, KIND_LATE, LATE, LOWERED, ON_HOST, PREFETCH_LATE, SUBSTITUTED
from ..cache.plan import EXPERT, FETCH_SLOT, FETCHED, FETCHES, KIND, MEMBERS, PLACE, TOKENS, WAIT
from ..cache.state import LAYER_OF, SLOT
from .counting import decide_one
from .fast import (
    AFTER,
    BEFORE,
    COMPUTE_BUSY,
    END,
    END_OF_PASS,
    HITS_OF_EVENT,
    HITS_OF_PASS,
    HOST_BUSY,
    KNOWN,
    LATE_OF_EVENT,
    NOW,
    RESIDENT,
    STALL,
    START_OF_PASS,
)
from .reference_copies import COMPUTED, DECIDED, Copy, CopyMachine, OnSegment, Process, at


class DecodeLoop:
    """The compute stream: layer after layer, pass after pass."""

    def __init__(self, engine: Any, on_segment: OnSegment | None = None) -> None:
        """`engine` is a prepared `Engine` of `run.py`: state, plan, costs, counts and record."""
        self.e = engine
        self.env = simpy.Environment(0)
        self.copies = CopyMachine(self.env, engine.path, on_segment)
        self.copies.landed = self._landed
        self.on_segment = on_segment
        self.expert_ns = engine.machine.expert_ns.tolist()
        self.compute_busy = 0
        self.late = 0  # of the present event
        self.ready: deque[int] = deque()
        self.waits_for: dict[tuple[int, int], int] = {}  # (place, expert) → member
        self.arrival: simpy.Event | None = None

    def run_block(self, block: Any, next_uses: Any) -> int:
        """Run a block of passes to its end; return how many of `next_uses` were used."""
        done: list[int] = []
        self.env.run(self.env.process(self._passes(block, next_uses, done)))
        self.copies.write_back()
        self.e.machine.time[NOW] = self.env.now
        self.e.machine.time[COMPUTE_BUSY] = self.compute_busy
        return done[0]

    def _passes(self, block: Any, next_uses: Any, done: list[int]) -> Process:
        e, used = self.e, 0
        layers = block.experts.shape[1]
        for index in range(block.begin, block.passes):
            number = block.first_pass + index
            self.copies.pass_number = number
            e.record.of_pass[START_OF_PASS, number] = self.env.now
            hits_before = int(e.counts[HITS])
            for layer in range(layers):
                used = decide_one(
                    e.rules,
                    e.state,
                    e.plan,
                    e.wanted,
                    block,
                    index,
                    layer,
                    next_uses,
                    used,
                    e.counts,
                    e.layer_counts,
                )
                yield from self._event(number, layer)
            e.record.of_pass[END_OF_PASS, number] = self.env.now
            e.record.of_pass[HITS_OF_PASS, number] = int(e.counts[HITS]) - hits_before
        done.append(used)

    def _event(self, number: int, layer: int) -> Process:
        e, env, m = self.e, self.env, self.e.machine
        kind = int(m.layer_class[layer])
        before, resident, after = (m.pass_ns.item(part, number, kind) for part in (BEFORE, RESIDENT, AFTER))
        if before:
            yield self._work(before, "attention + router", number, layer)
        decided = env.now + m.decision_ns
        m.time[HOST_BUSY] += m.decision_ns
        if m.decision_ns and not m.decision_beside:
            self._show("host", "decide", m.decision_ns, number, layer)
            yield at(env, m.decision_ns, DECIDED)
        known, busy, self.late = env.now, self.compute_busy, 0
        if e.rules.contract == ACCESS:
            yield from self._serial(number, layer, kind, resident, decided)
        else:
            yield from self._together(number, layer, kind, resident, decided)
        stall = env.now - known - (self.compute_busy - busy)
        m.time[STALL] += stall
        e.record.layer_stall[layer] += stall
        if after:
            yield self._work(after, "combine", number, layer)
        if e.record.event.shape[1]:
            of_event = e.record.event[:, number * len(m.layer_class) + layer]
            of_event[KNOWN], of_event[END], of_event[LATE_OF_EVENT] = known, env.now, self.late
            of_event[HITS_OF_EVENT] = (e.plan.member[KIND, : e.plan.size[MEMBERS]] == HIT).sum()

    def _together(self, number: int, layer: int, kind: int, resident: int, decided: int) -> Process:
        """`slots` and `fused`: hits first, then whoever lands."""
        e, copies = self.e, self.copies
        rows = e.plan.member[:, : e.plan.size[MEMBERS]].tolist()
        experts, tokens, kinds, places = rows[EXPERT], rows[TOKENS], rows[KIND], rows[PLACE]
        members, expert_ns = range(len(experts)), self.expert_ns[kind]
        followers = {wait: i for i, wait in enumerate(rows[WAIT]) if wait >= 0}
        waiting = set(followers.values())
        layer_of_copy = [layer + len(e.machine.layer_class) * (kind == LOWERED) for kind in kinds]
        late = [i for i in members if kinds[i] == HIT and copies.under_way(places[i], experts[i])]
        for i in late:
            self._mark_late(i, layer)
            self.waits_for[places[i], experts[i]] = i
        self.ready.extend(i for i in members if kinds[i] in (HIT, SUBSTITUTED) and i not in late)
        on_host = [i for i in members if kinds[i] == ON_HOST]
        on_device = sum(kind >= SUBSTITUTED for kind in kinds)

        def issue(_: simpy.Event | None = None) -> None:
            for i in late:
                if (places[i], experts[i]) in self.waits_for:
                    copies.promote(places[i])
            for i in members:
                if kinds[i] > KIND_LATE and i not in waiting:
                    self._ask(experts[i], places[i], layer_of_copy[i], i)
            self._prefetch()

        issued = self._at_decision(issue, decided)
        host = (
            self.env.process(self._on_host(on_host, tokens, decided, number, layer, kind))
            if on_host
            else None
        )
        if resident:
            yield self._work(resident, "shared", number, layer)
        for _ in range(on_device):
            if not self.ready:
                yield self._wait()
            i = self.ready.popleft()
            if duration := expert_ns[tokens[i]]:
                yield self._work(duration, "expert", number, layer, experts[i])
            if i in followers:
                follower = followers[i]
                self._ask(experts[follower], places[follower], layer_of_copy[follower], follower)
        if issued is not None and not issued.processed:
            yield issued
        if host is not None and host.is_alive:
            yield host
        if e.rules.contract == FUSED:
            for i in members:
                slot = int(e.state.expert[SLOT, experts[i]]) - 1
                if KIND_LATE < kinds[i] < LOWERED and slot >= 0:
                    copies.withdraw(slot)

    def _on_host(
        self, members: list[int], tokens: list[int], decided: int, number: int, layer: int, kind: int
    ) -> Process:
        """The host cores: one expert after another, from the moment decisions take effect."""
        m = self.e.machine
        if decided > self.env.now:
            yield at(self.env, decided - self.env.now, DECIDED)
        for i in members:
            duration = m.host_ns.item(kind, tokens[i])
            m.time[HOST_BUSY] += duration
            if duration:
                self._show("host", "expert", duration, number, layer)
                yield at(self.env, duration, COMPUTED)

    def _serial(self, number: int, layer: int, kind: int, resident: int, decided: int) -> Process:
        """`access`: one member after another, each copied when its turn comes; prefetches at the end."""
        rows = self.e.plan.member[:, : self.e.plan.size[MEMBERS]].tolist()
        if resident:
            yield self._work(resident, "shared", number, layer)
        for i, (expert, place) in enumerate(zip(rows[EXPERT], rows[PLACE], strict=True)):
            if rows[KIND][i] == HIT and not self.copies.under_way(place, expert):
                self.ready.append(i)
            elif rows[KIND][i] == HIT:
                self._mark_late(i, layer)
                self.waits_for[place, expert] = i
                self.copies.promote(place)
            else:
                self._ask(expert, place, layer, i)
            if not self.ready:
                yield self._wait()
            self.ready.popleft()
            if duration := self.expert_ns[kind][rows[TOKENS][i]]:
                yield self._work(duration, "expert", number, layer, expert)
        self._prefetch()
        if self.env.now < decided:
            yield at(self.env, decided - self.env.now, DECIDED)

    def _at_decision(self, issue: Callable[[simpy.Event | None], None], decided: int) -> simpy.Event | None:
        """Let decisions take effect now, or when the host has made them beside the compute stream."""
        if decided == self.env.now:
            issue(None)
            return None
        event = at(self.env, decided - self.env.now, DECIDED)
        assert event.callbacks is not None
        event.callbacks.append(issue)
        return event

    def _ask(self, expert: int, place: int, layer: int, member: int) -> None:
        self.waits_for[place, expert] = member
        self.copies.request(Copy(expert, place, layer, demand=True))

    def _prefetch(self) -> None:
        many = int(self.e.plan.size[FETCHES])
        if many == 0:
            return
        fetched = self.e.plan.fetch[:, :many]
        layers = self.e.state.expert[LAYER_OF, fetched[FETCHED]].tolist()
        for expert, place, layer in zip(
            fetched[FETCHED].tolist(), fetched[FETCH_SLOT].tolist(), layers, strict=True
        ):
            self.copies.request(Copy(expert, place, layer, demand=False))

    def _wait(self) -> simpy.Event:
        """Until a member of the present event lands."""
        self.arrival = simpy.Event(self.env)
        return self.arrival

    def _landed(self, copy: Copy) -> None:
        member = self.waits_for.pop((copy.place, copy.expert), None)
        if member is None:
            return
        self.ready.append(member)
        if self.arrival is not None:
            self.arrival._ok, self.arrival._value = True, None
            self.env.schedule(self.arrival, COMPUTED)
            self.arrival = None

    def _mark_late(self, i: int, layer: int) -> None:
        e = self.e
        self.late += 1
        e.counts[HITS] -= 1
        e.counts[LATE] += 1
        e.counts[PREFETCH_LATE] += 1
        e.layer_counts[layer, HIT] -= 1
        e.layer_counts[layer, KIND_LATE] += 1
        e.plan.member[KIND, i] = KIND_LATE

    def _work(
        self, duration: int, name: str, number: int, layer: int, expert: int | None = None
    ) -> simpy.Event:
        """Occupy the compute stream; the event that ends it."""
        self.compute_busy += duration
        if self.on_segment is not None:
            self.on_segment("compute", name, self.env.now, duration, number, layer, expert, "")
        return at(self.env, duration, COMPUTED)

    def _show(self, lane: str, name: str, duration: int, number: int, layer: int) -> None:
        if self.on_segment is not None:
            self.on_segment(lane, name, self.env.now, duration, number, layer, None, "")
