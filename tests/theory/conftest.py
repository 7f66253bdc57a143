"""Machines with few numbers, and what a run did as segments: for laws that hold on both engines."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from codesign.sim.blocks import BlockSource
from codesign.sim.costs import CostTable
from codesign.sim.engines.run import Engine, RunResult, Setup
from small_scenarios import drawn_setup


class Segment(NamedTuple):
    """Something that ran on a lane: `compute`, `host`, `copy 0`, …, `storage`. `expert` is None where none is meant."""

    lane: str
    name: str
    start_ns: int
    duration_ns: int
    pass_number: int
    layer: int
    expert: int | None
    kind: str

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.duration_ns


@pytest.fixture(params=["numba", "simpy"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def machine() -> Callable[..., CostTable]:
    """A cost table of one class of layers, every pass alike."""

    def build(
        source: BlockSource, *, before: int = 0, resident: int = 0, expert: int = 0, after: int = 0, copy: int = 1,
        storage: int = 1, engines: int = 1,
    ) -> CostTable:  # fmt: skip
        passes = source.passes.count
        expert_ns = np.full((1, int(source.passes.tokens().max()) + 1), expert, np.int64)
        expert_ns[:, 0] = 0
        return CostTable(
            layer_class_L=np.zeros(source.trace.num_layers, np.int32),
            before_ns_PC=np.full((passes, 1), before, np.int64),
            resident_ns_PC=np.full((passes, 1), resident, np.int64),
            expert_ns_CN=expert_ns,
            after_ns_PC=np.full((passes, 1), after, np.int64),
            copy_ns_C=np.array([copy], np.int64),
            storage_ns_C=np.array([storage], np.int64),
            expert_bytes_C=np.ones(1, np.int64),
            copy_engines=engines,
            source="by hand",
            provenance=(),
        )

    return build


@pytest.fixture
def scenario() -> Callable[..., tuple[BlockSource, Setup]]:
    """A drawn scenario, counted from its first pass on, with some of its settings replaced."""

    def draw(seed: int, **changes: object) -> tuple[BlockSource, Setup]:
        source, setup = drawn_setup(np.random.default_rng(seed), misses=False)  # laws of loading every miss
        return source, dataclasses.replace(setup, warm_passes=0, **changes)  # type: ignore[arg-type]

    return draw


@pytest.fixture
def watched() -> Callable[[BlockSource, Setup], tuple[RunResult, list[Segment]]]:
    """A run on the event-driven engine, and everything that ran in it."""

    def run(source: BlockSource, setup: Setup) -> tuple[RunResult, list[Segment]]:
        found: list[Segment] = []
        result = Engine(source, setup).run("simpy", on_segment=lambda *facts: found.append(Segment(*facts)))
        return result, found

    return run


@pytest.fixture
def computing_ns() -> Callable[[BlockSource, CostTable], np.ndarray]:
    """[P] nanoseconds that each pass computes, added up from the trace row by row: the same for every policy."""

    def add_up(source: BlockSource, costs: CostTable) -> np.ndarray:
        trace, passes = source.trace, source.passes
        total = np.zeros(passes.count, np.int64)
        for number in range(passes.count):
            rows = passes.rows[passes.start[number] : passes.start[number + 1]]
            for layer, kind in enumerate(costs.layer_class_L.tolist()):
                tokens_of = Counter(x for x in trace.experts_TLK[rows, layer].ravel().tolist() if x >= 0)
                total[number] += sum(int(costs.expert_ns_CN[kind, tokens]) for tokens in tokens_of.values())
                total[number] += costs.before_ns_PC[number, kind] + costs.resident_ns_PC[number, kind]
                total[number] += costs.after_ns_PC[number, kind]
        return total

    return add_up
