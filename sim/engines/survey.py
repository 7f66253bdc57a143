"""What is known of a trace before it is replayed: union sizes, use counts, and (for the Beladys) next uses.

Shape letters: P passes, L MoE layers, n = L × experts a layer, A accesses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..blocks import BlockSource
from ..cache.plan import new_plan
from ..cache.state import NEVER
from .counting import count_uses, follow_uses, note_accesses


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """One look over a trace that no policy influences."""

    union_PL: NDArray[np.integer]
    """|E| of each event: distinct experts of the pass in the layer."""
    firsts_PL: NDArray[np.integer]
    """Experts of each event that no earlier event used."""
    uses: NDArray[np.int64]
    """[n] events that use each expert."""
    uses_first_half: NDArray[np.int64]
    """[n] the same over the first ⌊P/2⌋ passes."""
    uses_training: NDArray[np.int64] | None = None
    """[n] the same over the passes that train; None where none do."""

    @property
    def accesses(self) -> int:
        return int(self.union_PL.sum(dtype=np.int64))

    def filled_after(self, capacity_per_pool: NDArray[np.int64]) -> int | None:
        """Passes after which every pool has been asked for as many distinct experts as it holds, None: never.

        `capacity_per_pool` is in experts: one entry (one pool), or one a layer.
        """
        seen_P_pool = np.cumsum(self.firsts_PL, axis=0, dtype=np.int32)
        if len(capacity_per_pool) == 1:
            seen_P_pool = seen_P_pool.sum(axis=1, keepdims=True)
        enough = (seen_P_pool >= capacity_per_pool).all(axis=1)
        return int(np.argmax(enough)) + 1 if enough.any() else None


def survey(source: BlockSource, training_passes: int = 0) -> Survey:
    """Read the trace once. Memory: four bytes an event (eight beyond 32,767 experts a layer) and 24 an expert."""
    trace, passes = source.trace, source.passes
    layers, experts = trace.num_layers, trace.num_experts
    narrow = np.int16 if experts <= np.iinfo(np.int16).max else np.int32
    union = np.zeros((passes.count, layers), narrow)
    firsts = np.zeros((passes.count, layers), narrow)
    uses = np.zeros(layers * experts, np.int64)
    plan = new_plan(experts, 0, 0)
    half = passes.count // 2
    until = {half: uses.copy(), training_passes: uses.copy()}
    for block in source:
        for cut in sorted(until):
            if block.first_pass <= cut < block.first_pass + block.passes:
                middle = cut - block.first_pass
                count_uses(block._replace(passes=middle), plan, uses, firsts, union)
                until[cut] = uses.copy()
                block = block._replace(begin=middle)
        count_uses(block, plan, uses, firsts, union)
    return Survey(union, firsts, uses, until[half], until[training_passes] if training_passes else None)


@dataclass(frozen=True, slots=True, eq=False)
class NextUses:
    """What only an oracle knows."""

    uses_A: NDArray[np.int32]
    """When the expert of each access is used next: an event, or under `access` an access; NEVER for no more."""
    first: NDArray[np.int32]
    """[n] its first use."""


def next_uses(source: BlockSource, accesses: int, *, by_access: bool) -> NextUses:
    """Read the trace once and note for each access when its expert comes again. Memory: four bytes an access.

    `by_access` is for the `access` contract: members as written, times counted in accesses, not in events.
    """
    trace = source.trace
    n = trace.num_layers * trace.num_experts
    latest = np.full(n, -1, np.int64)
    first, uses = np.full(n, NEVER, np.int32), np.full(accesses, NEVER, np.int32)
    plan = new_plan(trace.num_experts, 0, 0)
    done = 0
    for block in source:
        done = follow_uses(block, by_access, plan, latest, first, uses, done)
    return NextUses(uses, first)


def access_sequence(source: BlockSource, accesses: int) -> NDArray[np.int32]:
    """[A] expert numbers in the order of contract `access`: pass by pass, layer by layer, as written. Four bytes each."""
    ids = np.empty(accesses, np.int32)
    plan = new_plan(source.trace.num_experts, 0, 0)
    done = 0
    for block in source:
        done = note_accesses(block, plan, ids, done)
    return ids
