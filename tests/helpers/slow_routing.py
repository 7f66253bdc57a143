"""Slow, obvious twins of the policies that look at gate weights or at sequences: computed anew from the trace each time."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

from codesign.sim.engines.run import Setup
from slow_base import Slow


class Score(Slow):
    """An exponential average of the weight that each event of its layer gave an expert."""

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.score: Counter[int] = Counter()

    def begin(self, members: list[int]) -> None:
        for x in range(self.layer * self.experts, (self.layer + 1) * self.experts):
            given = sum(share for share, _ in self.shares(x)) if x in members else 0
            self.score[x] = self.score[x] - self.score[x] // 8 + given * 1024 // 8

    def rank(self, x: int) -> Any:
        return self.score[x], self.used_at[x][0], x


class Lhu(Slow):
    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.mattered: Counter[int] = Counter()

    def hit(self, x: int) -> None:
        super().hit(x)
        self.mattered[x] += any(heavier < 6 * 2**14 // 10 for _, heavier in self.shares(x))

    def insert(self, x: int) -> None:
        self.mattered[x] = 0
        super().insert(x)

    def rank(self, x: int) -> Any:
        return self.mattered[x], self.used_at[x][0], x


class Hobbit(Slow):
    """Four shares of what was ever seen of an expert, as fractions."""

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.seen_in: Counter[int] = Counter()
        self.uses_ever: Counter[int] = Counter()
        self.mattered: Counter[int] = Counter()

    def begin(self, members: list[int]) -> None:
        for x in members:
            self.seen_in[x] = self.pass_number + 1
            self.uses_ever[x] += 1
            self.mattered[x] += any(heavier < 6 * 2**14 // 10 for _, heavier in self.shares(x))

    def rank(self, x: int) -> Any:
        passes = self.pass_number + 1
        until = Fraction((x // self.experts - self.layer) % self.layers, self.layers)
        seen = Fraction(self.seen_in[x] + self.uses_ever[x] + self.mattered[x], passes)
        return seen + 1 - until, self.seen_in[x], x


class Activation(Slow):
    """Places of the batch, each with what its sequence has used so far."""

    def __init__(self, setup: Setup, experts: int, layers: int) -> None:
        super().__init__(setup, experts, layers)
        self.places: list[tuple[int, Counter[int]]] = []

    def begin(self, members: list[int]) -> None:
        passes = self.source.passes
        rows = range(passes.start[self.pass_number], passes.start[self.pass_number + 1])
        here = [int(passes.sequence_of_row[row]) for row in rows]
        widest = max(
            len(set(passes.sequence_of_row[low:high].tolist()))
            for low, high in zip(passes.start[:-1], passes.start[1:], strict=True)
        )
        for sequence in dict.fromkeys(here):
            if sequence in [owner for owner, _ in self.places]:
                continue
            if len(self.places) < widest:
                self.places.append((sequence, Counter()))
            else:
                gone = next(i for i, (owner, _) in enumerate(self.places) if owner not in here)
                self.places[gone] = (sequence, Counter())
        for row, sequence in zip(self.rows(), here, strict=True):
            used = next(counts for owner, counts in self.places if owner == sequence)
            used.update(
                self.layer * self.experts + int(e)
                for e in self.source.trace.experts_TLK[row, self.layer]
                if e >= 0
            )

    def rank(self, x: int) -> Any:
        layer = x // self.experts
        of_layer = range(layer * self.experts, (layer + 1) * self.experts)
        total = sum(counts[y] for _, counts in self.places for y in of_layer)
        share = sum(counts[x] for _, counts in self.places) / max(total, 1)
        return (share + 1e-4) * (self.layers - layer), self.used_at[x][0], x
