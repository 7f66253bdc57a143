"""What one real run found: decisions, ledger, and where the time went, event by event."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...sim.cache.ledger import Ledger
from ...traces.expert_trace import ExpertTrace
from .copies import Copy
from .decisions import Decision

# Rows of RunRecord.part_ns
BEFORE, DECIDE, RESIDENT, EXPERTS, STALL, AFTER = range(6)
PARTS = ("before", "decide", "resident", "experts", "stall", "after")


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """P passes, L MoE layers. Times are nanoseconds since the run began."""

    ledger: Ledger
    layer_counts: NDArray[np.int64]
    """[L, 5] hits, late, collision, compulsory and capacity misses."""
    pass_start_ns: NDArray[np.int64]
    pass_end_ns: NDArray[np.int64]
    part_ns: NDArray[np.int64]
    """[6, P, L]: before the experts are known; deciding and asking; work that needs no routed expert; experts; waiting
    for experts; after them (with what follows the last MoE layer)."""
    known_ns: NDArray[np.int64]
    """[P, L] when decisions took effect."""
    end_ns: NDArray[np.int64]
    """[P, L]"""
    expert_tokens_M: NDArray[np.int64]
    """Tokens of each computed member, in order."""
    expert_ns_M: NDArray[np.int64]
    expert_M: NDArray[np.int64]
    """Which expert each computed member was: layer index × N + id."""
    copies: tuple[Copy, ...]
    """Copies that landed, in order; their times are of the clock, less `began_ns` since the run began."""
    began_ns: int
    stall_spans_ns: NDArray[np.int64]
    """[n, 2] from when to when the run waited for experts."""
    withdrawn: int
    decisions: tuple[Decision, ...] = field(repr=False)
    """Each event's, pass by pass and layer by layer."""
    trace: ExpertTrace | None
    """What a live run's routers chose; None where routing was forced."""

    @property
    def makespan_s(self) -> float:
        return float(self.pass_end_ns[-1] - self.pass_start_ns[0]) / 1e9

    def shares(self) -> dict[str, float]:
        """Of the makespan: compute, stall (waiting for experts), host (deciding, asking, bookkeeping). They add up to 1."""
        total = self.makespan_s * 1e9
        parts = self.part_ns.sum(axis=(1, 2))
        compute = parts[[BEFORE, RESIDENT, EXPERTS, AFTER]].sum() / total
        stall = parts[STALL] / total
        return {"compute": float(compute), "stall": float(stall), "host": float(1 - compute - stall)}

    def link_busy_ns(self) -> int:
        """Time in which a copy was in flight: copies are one after another, so their times add up."""
        return sum(copy.landed_ns - copy.started_ns for copy in self.copies)

    def overlap(self) -> float | None:
        """Share of the copies' time in which the run did something else than wait for them; None without copies."""
        busy = self.link_busy_ns()
        if busy == 0:
            return None
        starts = np.array([copy.started_ns for copy in self.copies]) - self.began_ns
        ends = np.array([copy.landed_ns for copy in self.copies]) - self.began_ns
        waited = 0
        for low, high in self.stall_spans_ns:  # both lists are in order, and copies do not overlap each other
            first, last = np.searchsorted(ends, low, side="right"), np.searchsorted(starts, high)
            waited += int((np.minimum(ends[first:last], high) - np.maximum(starts[first:last], low)).sum())
        return 1 - waited / busy
