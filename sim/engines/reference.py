"""The reference engine: the machine of `docs/engine.md` as SimPy processes.

One process a copy engine, one for storage, one for the compute stream (which also follows the decode loop). What
each event decides comes from the same cache core as in the fast engine; the timeline is written twice, here to
be read and there to be quick, and a property test holds them equal to the nanosecond.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import simpy

from ..cache.core import ACCESS, FETCHES, FUSED, MEMBERS
from ..cache.ledger import HIT, HITS, KIND_LATE, LATE, PREFETCH_LATE
from .counting import decide_event
from .fast import COMPUTE_BUSY, HOST_BUSY, NOW, STALL
from .link import COPIES, FAR, LINK_BUSY, STORAGE_BUSY, WITHDRAWN, WITHDRAWN_BYTES

# Order of events at the same time: a copy engine's completion has its index as priority, then these
_STORAGE_DONE, _COMPUTED, _DECIDED, _STORAGE_STARTS, _ENGINE_STARTS = 1000, 2000, 3000, 4000, 5000

Process = Generator[simpy.Event, Any, None]
OnSegment = Callable[[str, str, int, int, int, int, int | None, str], None]
"""lane, name, start_ns, duration_ns, pass, layer, expert, kind"""


class _Copy:
    """One expert on its way to a place on the device."""

    __slots__ = ("demand", "expert", "layer", "on_link", "place", "started")

    def __init__(self, expert: int, place: int, layer: int, demand: bool) -> None:
        self.expert, self.place, self.layer, self.demand = expert, place, layer, demand
        self.started = False
        self.on_link = False


class _Queue:
    """Demand before prefetch, then first come, first served."""

    def __init__(self) -> None:
        self.demand: deque[_Copy] = deque()
        self.prefetch: deque[_Copy] = deque()

    def join(self, copy: _Copy) -> None:
        (self.demand if copy.demand else self.prefetch).append(copy)

    def leave(self, copy: _Copy) -> None:
        (self.demand if copy.demand else self.prefetch).remove(copy)

    def take(self) -> _Copy | None:
        if self.demand:
            return self.demand.popleft()
        return self.prefetch.popleft() if self.prefetch else None


class CopyMachine:
    """Storage, copy engines and the queues before them."""

    def __init__(self, env: simpy.Environment, path: Any, sizes: Any, on_segment: OnSegment | None) -> None:
        self.env, self.path, self.sizes, self.total, self.on_segment = env, path, sizes, path.total, on_segment
        self.link_ns, self.storage_ns = path.link_ns.tolist(), path.storage_ns.tolist()
        self.has_storage = bool(self.storage_ns)
        self.first, self.second = _Queue(), _Queue()
        self.pending: dict[int, _Copy] = {}
        self.started: dict[int, _Copy] = {}
        self.blocked: set[int] = set()
        self.landed: Callable[[_Copy], None] = lambda copy: None
        self.pass_number = 0
        self._idle: dict[int, simpy.Event] = {}
        for engine in range(len(path.link_place)):
            env.process(self._engine(engine))
        if self.has_storage:
            env.process(self._storage())

    # what the decode loop asks for

    def under_way(self, place: int, expert: int) -> bool:
        pending, started = self.pending.get(place), self.started.get(place)
        return (pending is not None and pending.expert == expert) or (started is not None and started.expert == expert)

    def withdraw(self, place: int) -> None:
        copy = self.pending.pop(place, None)
        if copy is None:
            return
        if place in self.blocked:
            self.blocked.discard(place)
        else:
            self.first.leave(copy)
        self.total[WITHDRAWN] += 1
        self.total[WITHDRAWN_BYTES] += self.sizes[copy.expert]

    def request(self, copy: _Copy) -> None:
        self.pending[copy.place] = copy
        if copy.place in self.started:
            self.blocked.add(copy.place)
            if copy.demand:
                self.promote(copy.place)
        else:
            self._join_first(copy)

    def promote(self, place: int) -> None:
        pending, started = self.pending.get(place), self.started.get(place)
        if pending is not None and not pending.demand:
            if place in self.blocked:
                pending.demand = True
            else:
                self.first.leave(pending)
                pending.demand = True
                self.first.join(pending)
        if started is not None and not started.demand:
            waits = self.has_storage and not started.on_link and started in self.second.prefetch
            if waits:
                self.second.leave(started)
            started.demand = True
            if waits:
                self.second.join(started)

    # the servers

    def _join_first(self, copy: _Copy) -> None:
        self.first.join(copy)
        self._wake(storage=self.has_storage)

    def _wake(self, *, storage: bool) -> None:
        for server in [-1] if storage else [key for key in self._idle if key >= 0]:
            event = self._idle.pop(server, None)
            if event is not None:
                event._ok, event._value = True, None
                self.env.schedule(event, priority=_STORAGE_STARTS if server < 0 else _ENGINE_STARTS + server)

    def _engine(self, engine: int) -> Process:
        queue = self.second if self.has_storage else self.first
        while True:
            yield from self._turn(engine)
            copy = queue.take()
            if copy is None:
                continue
            if not self.has_storage:
                self._start(copy)
            copy.on_link = True
            duration = self.link_ns[copy.layer]
            self._show(f"copy {engine}", copy, duration)
            self.total[LINK_BUSY] += duration
            self.path.link_until[engine] = self.env.now + duration
            yield at(self.env, duration, engine)
            self.path.link_until[engine] = FAR
            del self.started[copy.place]
            if copy.place in self.blocked:
                self.blocked.discard(copy.place)
                self._join_first(self.pending[copy.place])
            self.landed(copy)

    def _storage(self) -> Process:
        while True:
            yield from self._turn(-1)
            copy = self.first.take()
            if copy is None:
                continue
            self._start(copy)
            duration = self.storage_ns[copy.layer]
            self._show("storage", copy, duration)
            self.total[STORAGE_BUSY] += duration
            self.path.storage_until[0] = self.env.now + duration
            yield at(self.env, duration, _STORAGE_DONE)
            self.path.storage_until[0] = FAR
            self.second.join(copy)
            self._wake(storage=False)

    def _turn(self, server: int) -> Process:
        """Wait until there may be something to take, after all that completes or is decided at this time."""
        queue = self.first if server < 0 or not self.has_storage else self.second
        event = simpy.Event(self.env)
        if queue.demand or queue.prefetch:
            event._ok, event._value = True, None
            self.env.schedule(event, priority=_STORAGE_STARTS if server < 0 else _ENGINE_STARTS + server)
        else:
            self._idle[server] = event
        yield event

    def _start(self, copy: _Copy) -> None:
        del self.pending[copy.place]
        self.started[copy.place] = copy
        self.total[COPIES] += 1

    def _show(self, lane: str, copy: _Copy, duration: int) -> None:
        if self.on_segment is not None:
            kind = "demand" if copy.demand else "prefetch"
            self.on_segment(lane, "copy", self.env.now, duration, self.pass_number, copy.layer, copy.expert, kind)


def at(env: simpy.Environment, delay: int, priority: int) -> simpy.Event:
    """An event `delay` ns from now that keeps its place among the events of that time."""
    event = simpy.Event(env)
    event._ok, event._value = True, None
    env.schedule(event, priority=priority, delay=delay)
    return event


class DecodeLoop:
    """The compute stream: layer after layer, pass after pass."""

    def __init__(self, engine: Any, on_segment: OnSegment | None = None) -> None:
        """`engine` is a prepared `Engine` of `run.py`: state, plan, costs, counts and record."""
        self.e = engine
        self.env = simpy.Environment(0)
        self.copies = CopyMachine(self.env, engine.path, engine.state.size, on_segment)
        self.copies.landed = self._landed
        self.on_segment = on_segment
        self.ready: deque[int] = deque()
        self.waits_for: dict[tuple[int, int], int] = {}  # (place, expert) → member
        self.followers: dict[int, int] = {}
        self.arrival: simpy.Event | None = None

    def run_block(self, block: Any, next_uses: Any) -> int:
        """Run a block of passes to its end; return how many of `next_uses` were used."""
        done: list[int] = []
        self.env.run(self.env.process(self._passes(block, next_uses, done)))
        return done[0]

    def _passes(self, block: Any, next_uses: Any, done: list[int]) -> Process:
        e, used = self.e, 0
        layers = block.experts.shape[1]
        for index in range(block.begin, block.passes):
            number = block.first_pass + index
            self.copies.pass_number = number
            e.record.pass_start[number] = self.env.now
            for layer in range(layers):
                used = decide_event(
                    e.rules, e.state, e.plan, e.wanted, block, index, layer, next_uses, used, e.counts, e.layer_counts
                )
                yield from self._event(number, layer)
            e.record.pass_end[number] = self.env.now
        e.machine.time[NOW] = self.env.now
        done.append(used)

    def _event(self, number: int, layer: int) -> Process:
        e, env, m = self.e, self.env, self.e.machine
        kind = int(m.layer_class[layer])
        before, resident = int(m.before_ns[number, kind]), int(m.resident_ns[number, kind])
        after = int(m.after_ns[number, kind])
        yield from self._compute(before, "attention + router", number, layer, None)
        decided = env.now + m.decision_ns
        m.time[HOST_BUSY] += m.decision_ns
        if m.decision_ns and not m.decision_beside:
            self._show("host", "decide", m.decision_ns, number, layer)
            yield at(env, m.decision_ns, _DECIDED)
        known, busy = env.now, int(m.time[COMPUTE_BUSY])
        late_before = int(e.counts[LATE])
        if e.rules.contract == ACCESS:
            yield from self._serial(number, layer, kind, resident, decided)
        else:
            yield from self._together(number, layer, kind, resident, decided)
        stall = env.now - known - (int(m.time[COMPUTE_BUSY]) - busy)
        m.time[STALL] += stall
        e.record.layer_stall[layer] += stall
        yield from self._compute(after, "combine", number, layer, None)
        if e.record.event_end.shape[0]:
            event = number * len(m.layer_class) + layer
            e.record.event_known[event], e.record.event_end[event] = known, env.now
            e.record.event_late[event] = int(e.counts[LATE]) - late_before
            e.record.event_hits[event] = int((e.plan.kind[: e.plan.size[MEMBERS]] == HIT).sum())

    def _together(self, number: int, layer: int, kind: int, resident: int, decided: int) -> Process:
        """`slots` and `fused`: hits first, then whoever lands."""
        e, plan = self.e, self.e.plan
        members = int(plan.size[MEMBERS])
        kinds, places = plan.kind[:members].tolist(), plan.place[:members].tolist()
        experts, tokens = plan.member[:members].tolist(), plan.tokens[:members].tolist()
        expert_ns = e.machine.expert_ns[kind]
        late = []
        self.followers = {wait: i for i, wait in enumerate(plan.wait[:members].tolist()) if wait >= 0}
        waiting = set(self.followers.values())
        for i in range(members):
            if kinds[i] == HIT and self.copies.under_way(places[i], experts[i]):
                self._mark_late(i, layer)
                late.append(i)
                self.waits_for[places[i], experts[i]] = i
            elif kinds[i] == HIT:
                self.ready.append(i)

        def issue(_: simpy.Event | None = None) -> None:
            for i in late:
                if (places[i], experts[i]) in self.waits_for:
                    self.copies.promote(places[i])
            for i in range(members):
                if kinds[i] > KIND_LATE and i not in waiting:
                    self._ask(experts[i], places[i], layer, i)
            self._prefetch()

        issued = self._at_decision(issue, decided)
        yield from self._compute(resident, "shared", number, layer, None)
        for _ in range(members):
            if not self.ready:
                self.arrival = simpy.Event(self.env)
                yield self.arrival
                self.arrival = None
            i = self.ready.popleft()
            yield from self._compute(int(expert_ns[tokens[i]]), "expert", number, layer, experts[i])
            follower = self.followers.get(i)
            if follower is not None:
                self._ask(experts[follower], places[follower], layer, follower)
        if issued is not None and not issued.processed:
            yield issued
        if e.rules.contract == FUSED:
            for i in range(members):
                slot = int(e.state.slot_of[experts[i]])
                if kinds[i] > KIND_LATE and slot >= 0:
                    self.copies.withdraw(slot)

    def _serial(self, number: int, layer: int, kind: int, resident: int, decided: int) -> Process:
        """`access`: one member after another, each copied when its turn comes; prefetches at the end."""
        e, plan = self.e, self.e.plan
        members = int(plan.size[MEMBERS])
        kinds, places = plan.kind[:members].tolist(), plan.place[:members].tolist()
        experts, tokens = plan.member[:members].tolist(), plan.tokens[:members].tolist()
        expert_ns = e.machine.expert_ns[kind]
        yield from self._compute(resident, "shared", number, layer, None)
        for i in range(members):
            place, expert = places[i], experts[i]
            if kinds[i] == HIT and not self.copies.under_way(place, expert):
                self.ready.append(i)
            elif kinds[i] == HIT:
                self._mark_late(i, layer)
                self.waits_for[place, expert] = i
                self.copies.promote(place)
            else:
                self._ask(expert, place, layer, i)
            if not self.ready:
                self.arrival = simpy.Event(self.env)
                yield self.arrival
                self.arrival = None
            self.ready.popleft()
            yield from self._compute(int(expert_ns[tokens[i]]), "expert", number, layer, expert)
        self._prefetch()
        if self.env.now < decided:
            yield at(self.env, decided - self.env.now, _DECIDED)

    def _at_decision(self, issue: Callable[[simpy.Event | None], None], decided: int) -> simpy.Event | None:
        """Let decisions take effect now, or when the host has made them beside the compute stream."""
        if decided == self.env.now:
            issue(None)
            return None
        event = at(self.env, decided - self.env.now, _DECIDED)
        assert event.callbacks is not None
        event.callbacks.append(issue)
        return event

    def _ask(self, expert: int, place: int, layer: int, member: int) -> None:
        self.copies.withdraw(place)
        self.waits_for[place, expert] = member
        self.copies.request(_Copy(expert, place, layer, demand=True))

    def _prefetch(self) -> None:
        plan, layer_of = self.e.plan, self.e.state.layer_of
        for f in range(int(plan.size[FETCHES])):
            place, expert = int(plan.fetch_slot[f]), int(plan.fetch[f])
            self.copies.withdraw(place)
            self.copies.request(_Copy(expert, place, int(layer_of[expert]), demand=False))

    def _landed(self, copy: _Copy) -> None:
        member = self.waits_for.pop((copy.place, copy.expert), None)
        if member is None:
            return
        self.ready.append(member)
        if self.arrival is not None and not self.arrival.triggered:
            self.arrival._ok, self.arrival._value = True, None
            self.env.schedule(self.arrival, priority=_COMPUTED)

    def _mark_late(self, i: int, layer: int) -> None:
        e = self.e
        e.counts[HITS] -= 1
        e.counts[LATE] += 1
        e.counts[PREFETCH_LATE] += 1
        e.layer_counts[layer, HIT] -= 1
        e.layer_counts[layer, KIND_LATE] += 1
        e.plan.kind[i] = KIND_LATE

    def _compute(self, duration: int, name: str, number: int, layer: int, expert: int | None) -> Process:
        self.e.machine.time[COMPUTE_BUSY] += duration
        if duration:
            if self.on_segment is not None:
                self.on_segment("compute", name, self.env.now, duration, number, layer, expert, "")
            yield at(self.env, duration, _COMPUTED)

    def _show(self, lane: str, name: str, duration: int, number: int, layer: int) -> None:
        if self.on_segment is not None:
            self.on_segment(lane, name, self.env.now, duration, number, layer, None, "")


