"""The copy path of the reference engine as SimPy processes: storage, copy engines, and the queues before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any

import simpy

from .link import (
    BYTES,
    COPIES,
    FAR,
    LINK_BUSY,
    LINK_NS,
    STORAGE_BUSY,
    STORAGE_NS,
    UNTIL,
    WITHDRAWN,
    WITHDRAWN_BYTES,
)

# Order of events at the same time: a copy engine's completion has its index as priority, then these
STORAGE_DONE, COMPUTED, DECIDED, STORAGE_STARTS, ENGINE_STARTS = 1000, 2000, 3000, 4000, 5000
_STORAGE = -1  # the server that is no copy engine

Process = Generator[simpy.Event, Any, None]
OnSegment = Callable[[str, str, int, int, int, int, int | None, str], None]
"""lane, name, start_ns, duration_ns, pass, layer, expert, kind"""


class Copy:
    """One expert on its way to a place on the device."""

    __slots__ = ("demand", "expert", "layer", "on_link", "place")

    def __init__(self, expert: int, place: int, layer: int, demand: bool) -> None:
        self.expert, self.place, self.layer, self.demand = expert, place, layer, demand
        self.on_link = False


class _Queue:
    """Demand before prefetch, then first come, first served."""

    def __init__(self) -> None:
        self.demand: deque[Copy] = deque()
        self.prefetch: deque[Copy] = deque()

    def join(self, copy: Copy) -> None:
        (self.demand if copy.demand else self.prefetch).append(copy)

    def leave(self, copy: Copy) -> None:
        (self.demand if copy.demand else self.prefetch).remove(copy)

    def take(self) -> Copy | None:
        if self.demand:
            return self.demand.popleft()
        return self.prefetch.popleft() if self.prefetch else None


def at(env: simpy.Environment, delay: int, priority: int) -> simpy.Event:
    """An event `delay` ns from now that keeps its place among the events of that time."""
    event = simpy.Event(env)
    event._ok, event._value = True, None
    env.schedule(event, priority, delay)
    return event


class CopyMachine:
    """Storage, copy engines and the queues before them."""

    def __init__(self, env: simpy.Environment, path: Any, on_segment: OnSegment | None) -> None:
        self.env, self.path, self.on_segment = env, path, on_segment
        self.link_ns, self.storage_ns = path.hop[LINK_NS].tolist(), path.hop[STORAGE_NS].tolist()
        self.bytes = path.hop[BYTES].tolist()
        self.until: list[int] = path.server[UNTIL].tolist()  # the last one is storage
        self.total: list[int] = path.total.tolist()
        self.has_storage = self.storage_ns[0] > 0
        self.first, self.second = _Queue(), _Queue()
        self.pending: dict[int, Copy] = {}
        self.started: dict[int, Copy] = {}
        self.blocked: set[int] = set()
        self.landed: Callable[[Copy], None] = lambda copy: None
        self.pass_number = 0
        self._idle: dict[int, simpy.Event] = {}
        for engine in range(len(self.until) - 1):
            env.process(self._engine(engine))
        if self.has_storage:
            env.process(self._storage())

    def write_back(self) -> None:
        """Put totals and the state of the servers where both engines keep them."""
        self.path.total[:], self.path.server[UNTIL] = self.total, self.until

    # what the decode loop asks for

    def under_way(self, place: int, expert: int) -> bool:
        pending, started = self.pending.get(place), self.started.get(place)
        return (pending is not None and pending.expert == expert) or (
            started is not None and started.expert == expert
        )

    def withdraw(self, place: int) -> None:
        copy = self.pending.pop(place, None)
        if copy is None:
            return
        if place in self.blocked:
            self.blocked.discard(place)
        else:
            self.first.leave(copy)
        self.total[WITHDRAWN] += 1
        self.total[WITHDRAWN_BYTES] += self.bytes[copy.layer]

    def request(self, copy: Copy) -> None:
        """Ask for a copy; one that still waits for the same place is withdrawn."""
        self.withdraw(copy.place)
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

    def _join_first(self, copy: Copy) -> None:
        self.first.join(copy)
        if self._idle:
            self._wake(storage=self.has_storage)

    def _wake(self, *, storage: bool) -> None:
        for server in [_STORAGE] if storage else [key for key in self._idle if key != _STORAGE]:
            event = self._idle.pop(server, None)
            if event is not None:
                event._ok, event._value = True, None
                self.env.schedule(event, STORAGE_STARTS if server == _STORAGE else ENGINE_STARTS + server)

    def _turn(self, server: int, queue: _Queue, priority: int) -> simpy.Event:
        """When there may be something to take, after all that completes or is decided at that time."""
        if queue.demand or queue.prefetch:
            return at(self.env, 0, priority)
        event = self._idle[server] = simpy.Event(self.env)
        return event

    def _engine(self, engine: int) -> Process:
        queue = self.second if self.has_storage else self.first
        while True:
            yield self._turn(engine, queue, ENGINE_STARTS + engine)
            copy = queue.take()
            if copy is None:
                continue
            if not self.has_storage:
                self._start(copy)
            copy.on_link = True
            duration = self.link_ns[copy.layer]
            if self.on_segment is not None:
                self._show(f"copy {engine}", copy, duration)
            self.total[LINK_BUSY] += duration
            self.until[engine] = self.env.now + duration
            yield at(self.env, duration, engine)
            self.until[engine] = FAR
            del self.started[copy.place]
            if copy.place in self.blocked:
                self.blocked.discard(copy.place)
                self._join_first(self.pending[copy.place])
            self.landed(copy)

    def _storage(self) -> Process:
        while True:
            yield self._turn(_STORAGE, self.first, STORAGE_STARTS)
            copy = self.first.take()
            if copy is None:
                continue
            self._start(copy)
            duration = self.storage_ns[copy.layer]
            if self.on_segment is not None:
                self._show("storage", copy, duration)
            self.total[STORAGE_BUSY] += duration
            self.until[-1] = self.env.now + duration
            yield at(self.env, duration, STORAGE_DONE)
            self.until[-1] = FAR
            self.second.join(copy)
            self._wake(storage=False)

    def _start(self, copy: Copy) -> None:
        del self.pending[copy.place]
        self.started[copy.place] = copy
        self.total[COPIES] += 1

    def _show(self, lane: str, copy: Copy, duration: int) -> None:
        if self.on_segment is not None:
            kind = "demand" if copy.demand else "prefetch"
            layer = copy.layer % (len(self.bytes) // 2)  # a lower-precision copy carries L more
            self.on_segment(lane, "copy", self.env.now, duration, self.pass_number, layer, copy.expert, kind)
