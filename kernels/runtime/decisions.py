"""The runtime's decisions: the simulator's prepared run, asked one event at a time.

Nothing is decided here. `sim.engines.run.Engine` makes state, plan and rules as for any simulated run without a clock, and
`sim.engines.counting.decide_one` (the compiled code of every engine) fills the plan; the runtime carries it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...sim.blocks import Block, BlockSource
from ...sim.cache import ledger as k
from ...sim.cache.plan import EVICTED, EXPERT, FETCH_SLOT, FETCHED, FETCHES, KIND, MEMBERS, PLACE, WAIT
from ...sim.cache.state import OCCUPANT, SLOT, UNUSED_PREFETCH
from ...sim.engines.counting import decide_one
from ...sim.engines.run import Engine, Setup


class Decision(NamedTuple):
    """One event's plan as plain lists: what a ledger would write, and what the runtime must do."""

    experts: list[int]
    """Ascending; expert number = layer index × N + id."""
    kinds: list[int]
    """Against the state at the event's start; a late member counts as a hit here."""
    places: list[int]
    waits: list[int]
    """Member whose computation must end before this one's copy may start; −1: none."""
    fetched: list[int]
    fetch_places: list[int]
    evicted: list[int]


class Decisions:
    """One run's decisions. Used once."""

    def __init__(self, source: BlockSource, setup: Setup) -> None:
        if setup.contract != "slots":
            raise UsageError(
                f"the runtime keeps the contract slots, not {setup.contract!r}: an expert is computed in a slot"
            )
        if setup.miss.name != "load":
            raise UsageError(f"the runtime loads every miss, and cannot {setup.miss.name!r} one")
        self.engine = Engine(source, replace(setup, costs=None, warm_passes=0, record_events=False))
        self._used = 0

    @property
    def slots(self) -> int:
        return int(self.engine.state.slot.shape[1])

    @property
    def staging(self) -> int:
        return int(self.engine.rules.staging)

    def first_load(self) -> list[tuple[int, int]]:
        """(slot, expert) that a static set puts in place before the run."""
        return [(slot, int(x)) for slot, x in enumerate(self.engine.state.slot[OCCUPANT]) if x >= 0]

    def passes(self) -> Iterator[tuple[Block, int]]:
        """The trace's passes in order, as (block, index in it)."""
        for block in self.engine.source:
            for index in range(block.begin, block.passes):
                yield block, index

    def decide(self, block: Block, index: int, layer: int) -> Decision:
        """The next event. Events must come in order: pass by pass, layer by layer."""
        e = self.engine
        used = decide_one(
            e.rules,
            e.state,
            e.plan,
            e.wanted,
            block,
            index,
            layer,
            e.future[self._used :],
            0,
            e.counts,
            e.layer_counts,
        )
        if len(e.future):
            self._used += int(used)
        plan: Any = e.plan
        members, fetches, evicted = (int(plan.size[column]) for column in (MEMBERS, FETCHES, EVICTED))
        experts, kinds, places, waits = (
            plan.member[row, :members].tolist() for row in (EXPERT, KIND, PLACE, WAIT)
        )
        return Decision(
            experts, kinds, places, waits, plan.fetch[FETCHED, :fetches].tolist(), plan.fetch[FETCH_SLOT, :fetches].tolist(),
            plan.evicted[:evicted].tolist(),
        )  # fmt: skip

    def mark_late(self, layer: int) -> None:
        """A member counted as a hit was still under way: a late miss. The one count that time decides."""
        counts, of_layer = self.engine.counts, self.engine.layer_counts
        counts[k.HITS] -= 1
        counts[k.LATE] += 1
        counts[k.PREFETCH_LATE] += 1
        of_layer[layer, k.HIT] -= 1
        of_layer[layer, k.KIND_LATE] += 1

    def ledger(self) -> tuple[k.Ledger, NDArray[np.int64]]:
        """The ledger and [L, 5] counts of layers. Raises `RuntimeError` where a law of conservation is broken."""
        e = self.engine
        resident, unused = (int(np.count_nonzero(e.state.expert[row])) for row in (SLOT, UNUSED_PREFETCH))
        k.check_conservation(e.counts, resident, unused)
        sized = e.setup.size_per_layer is not None
        return k.make_ledger(e.counts, unused, timed=True, sized=sized), e.layer_counts.copy()
