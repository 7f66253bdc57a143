"""Each policy once more, slow and obvious: plain lists and sorting, no arrays, no shared structure."""

from __future__ import annotations

from collections import Counter
from typing import Any

from codesign.sim.blocks import BlockSource
from codesign.sim.engines.run import Setup
from slow_base import Slow
from slow_divided import Arc, Lirs, S3Fifo, Slru, TwoQueue, WTinyLfu
from slow_misses import slow_misses
from slow_routing import Activation, Hobbit, Lhu, Score


class Fifo(Slow):
    def rank(self, x: int) -> Any:
        return self.inside.index(x)


class Lru(Slow):
    def rank(self, x: int) -> Any:
        return self.used_at[x]


class Lfu(Slow):
    def rank(self, x: int) -> Any:
        return self.uses[x], self.used_at[x]


class Lfru(Slow):
    def rank(self, x: int) -> Any:
        age = self.event - self.used_at[x][0] + 1
        from fractions import Fraction

        return Fraction(self.uses[x], age), -age, x


class LeastStale(Slow):
    """Stale before current, left before right, then who became current longest ago (or by distance)."""

    def rank(self, x: int) -> Any:
        current = self.current_pass[x] == self.pass_number
        right = x // self.experts > self.layer and self.setup.policy.setting("sides") == "true"
        if self.setup.policy.setting("order") == "distance":
            return current, right, -(x // self.experts), self.used_at[x][1]
        return current, right, self.used_at[x][1]


class Lfuda(Slow):
    """Worth is the age of the pool plus uses; the age is what the last one evicted was worth."""

    by_size = False

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.age: Counter[int] = Counter()
        self.worth: dict[int, int] = {}

    def hit(self, x: int) -> None:
        super().hit(x)
        sizes = self.setup.size_per_layer
        ratio = 1 << 20
        if self.by_size and sizes is not None:
            ratio = (int(sizes[0]) << 20) // int(sizes[x // self.experts])
        self.worth[x] = self.age[self.pool(x)] + self.uses[x] * ratio

    def evict(self, x: int) -> None:
        super().evict(x)
        self.age[self.pool(x)] = self.worth[x]

    def rank(self, x: int) -> Any:
        return self.worth[x], self.used_at[x][0], x


class Gdsf(Lfuda):
    by_size = True


class Slotted(Slow):
    """Keeps who sits in which slot, for policies with a hand: slots fill in order, a freed one is reused first."""

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.free: dict[int, list[int]] = {}
        self.mark: dict[int, bool] = {}
        self.hand: dict[int, Any] = {}

    def hit(self, x: int) -> None:
        super().hit(x)
        self.mark[x] = True

    def insert(self, x: int) -> None:
        pool = self.pool(x)
        size = min(int(self.setup.capacity_per_pool[pool]), self.experts * self.layers)
        free = self.free.setdefault(pool, list(range(size - 1, -1, -1)))
        self.slot[x] = free.pop()
        super().insert(x)
        self.mark[x] = False

    def evict(self, x: int) -> None:
        super().evict(x)
        self.free[self.pool(x)].append(self.slot.pop(x))


class Clock(Slotted):
    def victim(self, candidates: list[int]) -> int:
        pool = self.pool(candidates[0])
        size = min(int(self.setup.capacity_per_pool[pool]), self.experts * self.layers)
        hand = self.hand.get(pool, 0)
        at = {slot: x for x, slot in self.slot.items() if self.pool(x) == pool}
        while True:
            x = at.get(hand % size)
            hand = hand % size + 1
            if x in candidates:
                if not self.mark[x]:
                    self.hand[pool] = hand
                    return x
                self.mark[x] = False


class Sieve(Slotted):
    def evict(self, x: int) -> None:
        pool = self.pool(x)
        if self.hand.get(pool) == x:
            queue = [y for y in self.inside if self.pool(y) == pool]
            later = queue[queue.index(x) + 1 :]
            self.hand[pool] = later[0] if later else None
        super().evict(x)

    def victim(self, candidates: list[int]) -> int:
        pool = self.pool(candidates[0])
        queue = [y for y in self.inside if self.pool(y) == pool]
        x = self.hand.get(pool)
        i = queue.index(x) if x is not None else 0
        while True:
            y = queue[i % len(queue)]
            if y in candidates:
                if not self.mark[y]:
                    self.hand[pool] = y
                    return y
                self.mark[y] = False
            i += 1


class Static(Slow):
    streams = True

    def admits(self, x: int) -> bool:
        return False


class Never(Static):
    pass


class Unbounded(Slow):
    pass


class BeladyMandatory(Slow):
    def rank(self, x: int) -> Any:
        return -self.next[x], self.used_at[x][0], x


class BeladyBypass(BeladyMandatory):
    streams = True

    def prefers(self, x: int, y: int) -> bool:
        return self.next[x] < self.next[y]


SLOW: dict[str, type[Slow]] = {
    "never": Never, "unbounded": Unbounded, "belady-mandatory": BeladyMandatory, "belady-bypass": BeladyBypass,
    "fifo": Fifo, "lru": Lru, "lfu": Lfu, "lfru": Lfru, "clock": Clock, "sieve": Sieve, "least-stale": LeastStale,
    "static": Static, "s3-fifo": S3Fifo, "2q": TwoQueue, "slru": Slru, "arc": Arc, "lfuda": Lfuda, "gdsf": Gdsf,
    "w-tinylfu": WTinyLfu, "score": Score, "lhu": Lhu, "hobbit": Hobbit, "activation": Activation, "lirs": Lirs,
}  # fmt: skip


def events_of(source: BlockSource, *, as_written: bool) -> list[tuple[int, int, list[int]]]:
    """(pass, layer, members) of every event."""
    trace, passes = source.trace, source.passes
    found = []
    for number in range(passes.count):
        rows = passes.rows[passes.start[number] : passes.start[number + 1]]
        for layer in range(trace.num_layers):
            ids = [int(x) for row in rows for x in trace.experts_TLK[row, layer] if x >= 0]
            members = list(dict.fromkeys(ids)) if as_written else sorted(set(ids))
            found.append((number, layer, [layer * trace.num_experts + x for x in members]))
    return found


def slow_events(source: BlockSource, setup: Setup) -> tuple[int, int, int]:
    """(hits, evictions, bypasses) of a run without prefetch, event by event as the contracts say."""
    found = slow_run(source, setup)
    return found["hits"], found["evictions"], found["bypasses"]


def slow_run(source: BlockSource, setup: Setup) -> Counter[str]:
    """Everything counted of a run without prefetch."""
    trace, contract = source.trace, setup.contract
    cache = SLOW[setup.policy.name](setup, trace.num_experts, trace.num_layers)
    cache.source = source
    events = events_of(source, as_written=contract == "access")
    times: dict[int, list[int]] = {}
    clock = 0
    for index, (_, _, members) in enumerate(events):
        for x in members:
            times.setdefault(x, []).append(clock if contract == "access" else index)
            clock += 1
    if setup.policy.name == "static":
        _load_static(cache, events, source.passes.count)
    count: Counter[str] = Counter()
    done = 0

    def make_room(x: int, pinned: set[int]) -> str:
        capacity = int(setup.capacity_per_pool[cache.pool(x)])
        if not cache.admits(x) or capacity == 0:
            return "streamed"
        while sum(cache.pool(y) == cache.pool(x) for y in cache.inside) >= capacity:
            candidates = [y for y in cache.inside if cache.pool(y) == cache.pool(x) and y not in pinned]
            if not candidates:
                return "pinned"
            cache.newcomer = x
            y = cache.victim(candidates)
            if not cache.prefers(x, y):
                return "streamed"
            cache.evict(y)
            count["evictions"] += 1
        return "found"

    for index, (number, layer, members) in enumerate(events):
        cache.event, cache.pass_number, cache.layer = index, number, layer
        cache.begin(members)

        def foresee(x: int, at: int) -> None:
            later = [t for t in times[x] if t > at]
            cache.next[x] = later[0] if later else float("inf")

        if contract == "access":
            for x in members:
                foresee(x, done)
                done += 1
                if x in cache.inside:
                    count["hits"] += 1
                    cache.hit(x)
                elif make_room(x, set()) == "found":
                    cache.insert(x)
                else:
                    count["bypasses"] += 1
            continue
        resident = [x for x in members if x in cache.inside]
        for x in members:
            foresee(x, index)
        count["hits"] += len(resident)
        for x in resident:
            cache.hit(x)
        served = slow_misses(cache, members, resident, count)
        missed = [x for x in members if x not in resident and served.get(x, "lower") == "lower"]
        pinned, stand_ins, in_waves = set(resident), set(served.values()) - {"host", "lower", "skip"}, False
        for x in missed:
            outcome = "later"
            if contract == "slots":
                outcome = "streamed" if x in served else make_room(x, pinned | stand_ins)
            if outcome == "pinned" and not cache.streams:
                pinned, in_waves = set(), True
                outcome = make_room(x, pinned | stand_ins)
            if outcome == "found":
                cache.insert(x)
                if not in_waves:
                    pinned.add(x)
            elif outcome != "later":
                count["bypasses"] += 1
        if contract == "fused":
            for x in missed:
                if x not in served and make_room(x, stand_ins) == "found":
                    cache.insert(x)
                else:
                    count["bypasses"] += 1
        cache.end(members)
    return count


def _load_static(cache: Slow, events: list[tuple[int, int, list[int]]], passes: int) -> None:
    half = cache.setup.policy.setting("fit") == "first-half"
    uses = Counter(x for number, _, members in events for x in members if not half or number < passes // 2)
    for x in sorted(uses, key=lambda x: (-uses[x], x)):
        if (
            sum(cache.pool(y) == cache.pool(x) for y in cache.inside)
            < cache.setup.capacity_per_pool[cache.pool(x)]
        ):
            cache.insert(x)
