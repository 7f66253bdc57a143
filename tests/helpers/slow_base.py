"""What the slow twins of all policies share."""

from __future__ import annotations

from collections import Counter
from typing import Any

from codesign.sim.engines.run import Setup


class Slow:
    """One cache of all pools. `rank` says who goes first: smallest first."""

    streams = False

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        self.setup, self.experts, self.layers = setup, experts, layers
        self.inside: list[int] = []  # in order of arrival
        self.used_at: dict[int, tuple[int, int]] = {}  # (event, running number)
        self.uses: Counter[int] = Counter()
        self.event, self.pass_number, self.layer, self.now = 0, 0, 0, 0
        self.current_pass: dict[int, int] = {}
        self.next: dict[int, float] = {}
        self.slot: dict[int, int] = {}
        self.newcomer = -1  # for whom room is made
        self.source: Any = None
        self.together: Counter[tuple[int, int]] = Counter()

    def begin(self, members: list[int]) -> None:
        """The event's experts are known."""

    def end(self, members: list[int]) -> None:
        """Learn which experts a token used together."""
        for row in self.rows():
            ids = [
                self.layer * self.experts + int(e)
                for e in self.source.trace.experts_TLK[row, self.layer]
                if e >= 0
            ]
            self.together.update((x, y) for x in ids for y in ids if x != y)

    def rows(self) -> list[int]:
        """The trace's rows that pass now."""
        passes = self.source.passes
        return [
            int(r) for r in passes.rows[passes.start[self.pass_number] : passes.start[self.pass_number + 1]]
        ]

    def shares(self, x: int) -> list[tuple[int, int]]:
        """Of each token that chose x now: x's share of its gate weight, and what heavier experts carry, in 2^-14."""
        found = []
        for row in self.rows():
            ids = self.source.trace.experts_TLK[row, self.layer].tolist()
            weights = self.source.trace.weights_TLK[row, self.layer].tolist()
            if x % self.experts in ids:
                share = [round(weight / sum(weights) * 2**14) for weight in weights]
                place = ids.index(x % self.experts)
                order = sorted(range(len(ids)), key=lambda i: (-share[i], i))
                found.append((share[place], sum(share[i] for i in order[: order.index(place)])))
        return found

    def pool(self, x: int) -> int:
        return 0 if len(self.setup.capacity_per_pool) == 1 else x // self.experts

    def hit(self, x: int) -> None:
        self.now += 1
        self.used_at[x] = (self.event, self.now)
        self.uses[x] += 1
        self.current_pass[x] = self.pass_number

    def insert(self, x: int) -> None:
        self.inside.append(x)
        self.uses[x] = 0
        self.hit(x)

    def evict(self, x: int) -> None:
        self.inside.remove(x)

    def victim(self, candidates: list[int]) -> int:
        return min(candidates, key=self.rank)

    def rank(self, x: int) -> Any:
        raise AssertionError

    def admits(self, x: int) -> bool:
        return True

    def prefers(self, x: int, y: int) -> bool:
        return True
