"""The copy thread and its two queues: what `sim.engines.link` simulates, with a real tier behind it.

Each place (slot or staging) has at most one copy *started* and one *pending*. Copies start in order: demand before prefetch,
then who joined first. A started copy is never interrupted; a pending one whose place is given away is withdrawn.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...errors import RunError
from .cores import move_this_thread
from .tiers import Tier

DEMAND, PREFETCH = 0, 1
_CLOSE_S = (
    5.0  # a thread that hangs in a read is left behind after this; it is a daemon and ends with the process
)


@dataclass(slots=True, eq=False)
class Copy:
    """One copy asked for. Times are nanoseconds of the clock; 0: not yet."""

    expert: int
    place: int
    kind: int
    asked_ns: int
    started_ns: int = 0
    landed_ns: int = 0


class Landing(NamedTuple):
    """A copy that has arrived."""

    place: int
    expert: int


class Copies:
    """Asks a tier for experts in a thread of its own. All methods are for the computing thread."""

    def __init__(self, tier: Tier, places: Sequence[Any], *, limit_s: float, core: int | None = None) -> None:
        """`places` are writable rows; `limit_s` bounds every wait; `core` is where copies run."""
        self._tier, self._places, self._limit_s, self._core = tier, places, limit_s, core
        self._pending: list[Copy | None] = [None] * len(places)
        self._started: list[Copy | None] = [None] * len(places)
        self._queues: tuple[deque[Copy], deque[Copy]] = (deque(), deque())
        self._landed: deque[Landing] = deque()
        self._change = threading.Condition(threading.Lock())
        self._closing = False
        self._failure: BaseException | None = None
        self.done: list[Copy] = []
        """Copies that landed, in order."""
        self.withdrawn = 0
        self._thread = threading.Thread(target=self._work, name="expert copies", daemon=True)
        self._thread.start()

    # -- asked by the computing thread ------------------------------------------------------------------------------

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is asked for inside starts only after the block, in the order of the queues."""
        with self._change:
            yield
            self._change.notify_all()

    def request(self, place: int, expert: int, kind: int) -> None:
        """Ask for a copy; one that still waits for that place is withdrawn. Inside `together`."""
        self._withdraw(place)
        copy = Copy(expert, place, kind, time.perf_counter_ns())
        self._pending[place] = copy
        if self._started[place] is None:
            self._queues[kind].append(copy)
        elif kind == DEMAND:
            self._promote(place)

    def promote(self, place: int) -> None:
        """Whatever is on its way to this place is needed now. Inside `together`."""
        self._promote(place)

    def is_under_way(self, place: int, expert: int) -> bool:
        """Whether the expert was to come to this place and has not landed. Inside `together`."""
        return any(
            copy is not None and copy.expert == expert
            for copy in (self._pending[place], self._started[place])
        )

    def landings(self) -> list[Landing]:
        """What has arrived since the last call, without waiting. Raises `RunError` where the tier failed."""
        if not self._landed and self._failure is None:
            return []
        with self._change:
            return self._take()

    def wait(self) -> list[Landing]:
        """What has arrived, waiting until something has. Raises `RunError` where nothing does within the limit."""
        deadline = time.monotonic() + self._limit_s
        with self._change:
            while not self._landed and self._failure is None:
                left = deadline - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    waits = [copy.expert for copy in self._started if copy is not None]
                    raise RunError(
                        f"no expert arrived from the {self._tier.name} tier within {self._limit_s:g} s "
                        f"(under way: {waits or 'none'})"
                    )
                self._change.wait(min(left, 1.0))
            return self._take()

    def drain(self) -> None:
        """Wait until nothing is under way. Raises `RunError` at the limit."""
        deadline = time.monotonic() + self._limit_s
        with self._change:
            while any(self._queues) or any(copy is not None for copy in self._started):
                if self._failure is not None:
                    self._take()
                if not self._change.wait(min(1.0, self._limit_s)) and time.monotonic() > deadline:
                    raise RunError(
                        f"copies from the {self._tier.name} tier did not end within {self._limit_s:g} s"
                    )
            self._take()

    def close(self) -> None:
        """End the thread; copies that wait are dropped. Never hangs."""
        with self._change:
            self._closing = True
            for queue in self._queues:
                queue.clear()
            self._change.notify_all()
        self._thread.join(_CLOSE_S)

    # -- inside the lock --------------------------------------------------------------------------------------------

    def _take(self) -> list[Landing]:
        if self._failure is not None:
            failure = self._failure
            if isinstance(failure, RunError):
                raise failure
            raise RunError(f"copying from the {self._tier.name} tier failed: {failure!r}") from failure
        found = list(self._landed)
        self._landed.clear()
        return found

    def _withdraw(self, place: int) -> None:
        copy = self._pending[place]
        if copy is None:
            return
        if self._started[place] is None:
            self._queues[copy.kind].remove(copy)
        self._pending[place] = None
        self.withdrawn += 1

    def _promote(self, place: int) -> None:
        copy = self._pending[place]
        if copy is not None and copy.kind == PREFETCH:
            if self._started[place] is None:
                self._queues[PREFETCH].remove(copy)
                self._queues[DEMAND].append(copy)
            copy.kind = DEMAND

    # -- the copy thread --------------------------------------------------------------------------------------------

    def _work(self) -> None:
        try:
            move_this_thread(self._core)
            self._tier.start()
            while True:
                copy = self._next()
                if copy is None:
                    return
                copy.started_ns = time.perf_counter_ns()
                self._tier.fetch(copy.expert, self._places[copy.place], copy.asked_ns)
                self._land(copy)
        except BaseException as failure:
            with self._change:
                self._failure = failure
                self._change.notify_all()

    def _next(self) -> Copy | None:
        with self._change:
            while not any(self._queues):
                if self._closing:
                    return None
                self._change.wait()
            copy = (
                self._queues[DEMAND].popleft() if self._queues[DEMAND] else self._queues[PREFETCH].popleft()
            )
            self._pending[copy.place] = None
            self._started[copy.place] = copy
            return copy

    def _land(self, copy: Copy) -> None:
        with self._change:
            copy.landed_ns = time.perf_counter_ns()
            self._started[copy.place] = None
            behind = self._pending[copy.place]
            if behind is not None:
                self._queues[behind.kind].append(behind)
            self._landed.append(Landing(copy.place, copy.expert))
            self.done.append(copy)
            self._change.notify_all()
