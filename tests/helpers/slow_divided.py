"""Slow, obvious twins of the policies that divide a pool into queues: plain lists, searched from the old end."""

from __future__ import annotations

from codesign.sim.engines.run import Setup
from slow_base import Slow


class Divided(Slow):
    """Named queues for each pool, oldest first. Ghosts stand in queues without being inside."""

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.queues: dict[tuple[int, str], list[int]] = {}

    def places(self, pool: int) -> int:
        members = self.experts * (self.layers if len(self.setup.capacity_per_pool) == 1 else 1)
        return min(int(self.setup.capacity_per_pool[pool]), members)

    def queue(self, pool: int, name: str) -> list[int]:
        return self.queues.setdefault((pool, name), [])

    def where(self, x: int) -> str:
        return next((name for (_, name), queue in self.queues.items() if x in queue), "")

    def put(self, x: int, name: str) -> None:
        """At the young end of a queue, out of any other."""
        for queue in self.queues.values():
            if x in queue:
                queue.remove(x)
        self.queue(self.pool(x), name).append(x)

    def drop(self, x: int) -> None:
        for queue in self.queues.values():
            if x in queue:
                queue.remove(x)

    def cut(self, pool: int, name: str, most: int) -> None:
        while len(self.queue(pool, name)) > max(most, 0):
            self.queue(pool, name).pop(0)

    def first(self, pool: int, name: str, candidates: list[int]) -> int | None:
        return next((x for x in self.queue(pool, name) if x in candidates), None)


class S3Fifo(Divided):
    def hit(self, x: int) -> None:
        super().hit(x)
        self.uses[x] = min(self.uses[x], 3)

    def insert(self, x: int) -> None:
        self.put(x, "main" if self.where(x) == "ghost" else "small")
        super().insert(x)
        self.uses[x] = 0

    def evict(self, x: int) -> None:
        super().evict(x)
        if self.where(x) == "small":
            self.put(x, "ghost")
            pool = self.pool(x)
            self.cut(pool, "ghost", self.places(pool) - max(1, self.places(pool) // 10))
        else:
            self.drop(x)

    def victim(self, candidates: list[int]) -> int:
        pool = self.pool(candidates[0])
        while True:
            small, main = (self.first(pool, name, candidates) for name in ("small", "main"))
            full = len(self.queue(pool, "small")) >= max(1, self.places(pool) // 10)
            if small is not None and (main is None or full):
                if self.uses[small] < 2:
                    return small
                self.put(small, "main")
                self.uses[small] = 0
            else:
                assert main is not None
                if self.uses[main] == 0:
                    return main
                self.put(main, "main")
                self.uses[main] -= 1


class TwoQueue(Divided):
    def hit(self, x: int) -> None:
        super().hit(x)
        if self.where(x) == "main":
            self.put(x, "main")

    def insert(self, x: int) -> None:
        self.put(x, "main" if self.where(x) == "ghost" else "first")
        self.inside.append(x)

    def evict(self, x: int) -> None:
        super().evict(x)
        if self.where(x) == "first":
            self.put(x, "ghost")
            self.cut(self.pool(x), "ghost", max(1, self.places(self.pool(x)) // 2))
        else:
            self.drop(x)

    def victim(self, candidates: list[int]) -> int:
        pool = self.pool(candidates[0])
        first, main = self.first(pool, "first", candidates), self.first(pool, "main", candidates)
        if main is None or (first is not None and len(self.queue(pool, "first")) > self.places(pool) // 4):
            assert first is not None
            return first
        return main


class Slru(Divided):
    def hit(self, x: int) -> None:
        super().hit(x)
        pool = self.pool(x)
        self.put(x, "protected")
        if len(self.queue(pool, "protected")) > self.places(pool) * 4 // 5:
            self.put(self.queue(pool, "protected")[0], "probation")

    def insert(self, x: int) -> None:
        self.put(x, "probation")
        self.inside.append(x)

    def evict(self, x: int) -> None:
        super().evict(x)
        self.drop(x)

    def victim(self, candidates: list[int]) -> int:
        pool = self.pool(candidates[0])
        found = [self.first(pool, name, candidates) for name in ("probation", "protected")]
        return next(x for x in found if x is not None)


class Arc(Divided):
    """The four cases of the paper's figure, p adapted before room is made."""

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.target: dict[int, int] = {}
        self.decided: dict[int, tuple[int, int]] = {}

    def adapted(self, x: int) -> int:
        pool = self.pool(x)
        p, b1, b2 = self.target.get(pool, 0), len(self.queue(pool, "B1")), len(self.queue(pool, "B2"))
        if self.where(x) == "B1":
            return min(p + max(1, b2 // b1), self.places(pool))
        if self.where(x) == "B2":
            return max(p - max(1, b1 // b2), 0)
        return p

    def hit(self, x: int) -> None:
        self.put(x, "T2")

    def insert(self, x: int) -> None:
        pool, size = self.pool(x), self.places(self.pool(x))
        decided = self.decided.pop(pool, None)
        self.target[pool] = decided[1] if decided is not None and decided[0] == x else self.adapted(x)
        self.put(x, "T2" if self.where(x) in ("B1", "B2") else "T1")
        self.inside.append(x)
        self.cut(pool, "B1", size - len(self.queue(pool, "T1")))
        self.cut(pool, "B2", 2 * size - sum(len(self.queue(pool, name)) for name in ("T1", "T2", "B1")))

    def evict(self, x: int) -> None:
        super().evict(x)
        self.put(x, "B1" if self.where(x) == "T1" else "B2")

    def victim(self, candidates: list[int]) -> int:
        x = self.newcomer
        pool = self.pool(x)
        p = self.adapted(x)
        self.decided[pool] = (x, p)
        t1, t2 = self.first(pool, "T1", candidates), self.first(pool, "T2", candidates)
        many = len(self.queue(pool, "T1"))
        if t2 is None or (t1 is not None and (many > p or (many == p and self.where(x) == "B2"))):
            assert t1 is not None
            return t1
        return t2


class WTinyLfu(Divided):
    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.samples: dict[int, int] = {}

    def window(self, pool: int) -> int:
        return max(1, self.places(pool) // 100)

    def count(self, x: int) -> None:
        pool = self.pool(x)
        self.uses[x] += 1
        self.samples[pool] = self.samples.get(pool, 0) + 1
        if self.samples[pool] >= 10 * self.places(pool):
            for y in self.uses:
                if self.pool(y) == pool:
                    self.uses[y] //= 2
            self.samples[pool] //= 2

    def hit(self, x: int) -> None:
        pool = self.pool(x)
        self.count(x)
        if self.where(x) == "window":
            self.put(x, "window")
            return
        self.put(x, "protected")
        if len(self.queue(pool, "protected")) > (self.places(pool) - self.window(pool)) * 4 // 5:
            self.put(self.queue(pool, "protected")[0], "probation")

    def insert(self, x: int) -> None:
        pool = self.pool(x)
        self.count(x)
        self.put(x, "window")
        self.inside.append(x)
        if len(self.queue(pool, "window")) > self.window(pool):
            self.put(self.queue(pool, "window")[0], "probation")

    def evict(self, x: int) -> None:
        super().evict(x)
        self.drop(x)

    def victim(self, candidates: list[int]) -> int:
        pool = self.pool(candidates[0])
        window, probation, protected = (
            self.first(pool, name, candidates) for name in ("window", "probation", "protected")
        )
        main = probation if probation is not None else protected
        if main is None:
            assert window is not None
            return window
        if window is None or len(self.queue(pool, "window")) < self.window(pool):
            return main
        return window if self.uses[window] <= self.uses[main] else main


class Lirs(Divided):
    """A stack of experts by last use, oldest first, some low; a queue of the resident others."""

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.stack: list[int] = []
        self.waiting: list[int] = []
        self.low: set[int] = set()

    def below_low(self, pool: int) -> list[int]:
        """What of a pool lies in the stack below its last low entry."""
        found = []
        for x in self.stack:
            if self.pool(x) == pool:
                if x in self.low:
                    break
                found.append(x)
        return found

    def prune(self, pool: int) -> None:
        gone = self.below_low(pool)
        self.stack = [x for x in self.stack if x not in gone]

    def top(self, x: int) -> None:
        self.stack = [y for y in self.stack if y != x] + [x]

    def wait(self, x: int) -> None:
        self.waiting = [y for y in self.waiting if y != x] + [x]

    def become_low(self, x: int) -> None:
        pool = self.pool(x)
        self.low.add(x)
        self.waiting = [y for y in self.waiting if y != x]
        self.top(x)
        self.prune(pool)
        if sum(self.pool(y) == pool for y in self.low) > self.most_low(pool):
            lowest = next(y for y in self.stack if self.pool(y) == pool)
            self.low.remove(lowest)
            self.stack.remove(lowest)
            self.wait(lowest)
            self.prune(pool)

    def most_low(self, pool: int) -> int:
        return max(1, self.places(pool) - max(1, self.places(pool) // 100))

    def hit(self, x: int) -> None:
        if x in self.low:
            self.top(x)
            self.prune(self.pool(x))
        elif x in self.stack:
            self.become_low(x)
        else:
            self.wait(x)
            self.top(x)

    def insert(self, x: int) -> None:
        self.inside.append(x)
        many = sum(self.pool(y) == self.pool(x) for y in self.low)
        if x in self.stack or many < self.most_low(self.pool(x)):
            self.become_low(x)
        else:
            self.wait(x)
            self.top(x)

    def evict(self, x: int) -> None:
        super().evict(x)
        if x in self.low:
            self.low.remove(x)
            self.stack.remove(x)
            self.prune(self.pool(x))
        else:
            self.waiting.remove(x)

    def victim(self, candidates: list[int]) -> int:
        return next(x for x in [*self.waiting, *self.stack] if x in candidates)
