"""What a cache run counted, and the laws that the counts must keep."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# Columns of the integer counts that compiled code adds to
(
    LOGICAL, ACCESSES, HITS, LATE, COLLISION, COMPULSORY, CAPACITY, EVICTIONS, INSERTIONS, BYPASSES, WAVES,
    DEMAND_BYTES, PREFETCH_BYTES, PREFETCH_ISSUED, PREFETCH_USED, PREFETCH_LATE, PREFETCH_EVICTED_UNUSED,
    PREFETCH_REFUSED, FIRST_LOAD_BYTES, MOVED, HOST_COMPUTED, LOWERED_COPIES, SUBSTITUTIONS, SKIPS, WEIGHT_ALL,
    WEIGHT_LOWERED, WEIGHT_SUBSTITUTED, WEIGHT_SKIPPED,
) = range(28)  # fmt: skip
COUNTS = 28

# Kinds of access, as the core writes them into a plan; a late access is found by the engine, from time
HIT, KIND_LATE, KIND_COLLISION, KIND_COMPULSORY, KIND_CAPACITY = range(5)
# What a miss becomes when it is not loaded, written over its kind once that is counted: no copy (below HIT), or a
# lower-precision one
SUBSTITUTED, ON_HOST, SKIPPED = -1, -2, -3
LOWERED = 5


@dataclass(frozen=True, slots=True)
class Ledger:
    """Counts of one run. `late` and `prefetch_late` are None where no time was simulated (hits then include them)."""

    logical: int
    accesses: int
    hits: int
    late: int | None
    collision: int
    compulsory: int
    capacity: int
    evictions: int
    bypasses: int
    waves: int
    demand_bytes: int | None
    prefetch_bytes: int | None
    first_load_bytes: int | None
    experts_moved: int
    prefetch_issued: int
    prefetch_used: int
    prefetch_late: int | None
    prefetch_evicted_unused: int
    prefetch_unused_at_end: int
    prefetch_refused: int
    computed_on_host: int = 0
    lowered: int = 0
    substituted: int = 0
    skipped: int = 0
    weight_all: int = 0
    """Gate weight of all accesses, one a token and layer, in units of 2^-14; 0 where no miss policy asked for it."""
    weight_lowered: int = 0
    weight_substituted: int = 0
    weight_skipped: int = 0

    @property
    def misses(self) -> int:
        return self.accesses - self.hits

    @property
    def hit_rate(self) -> float:
        """Hits ÷ union (distinct experts of events)."""
        return self.hits / self.accesses

    @property
    def bytes_moved(self) -> int | None:
        """Copies decided on, the first load of a static set included; absent where expert sizes are unknown."""
        if self.demand_bytes is None or self.prefetch_bytes is None:
            return None
        return self.demand_bytes + self.prefetch_bytes + (self.first_load_bytes or 0)

    @property
    def prefetch_wasted(self) -> int:
        """Prefetched experts that were evicted unused, or still unused when the run ended."""
        return self.prefetch_evicted_unused + self.prefetch_unused_at_end

    def weight_share(self, what: str) -> float | None:
        """Share of all gate weight that was `lowered`, `substituted` or `skipped`; None where weights are not known."""
        touched: int = getattr(self, f"weight_{what}")
        return touched / self.weight_all if self.weight_all else None

    def misses_by_kind(self) -> dict[str, int | None]:
        return {
            "late": self.late,
            "collision": self.collision,
            "compulsory": self.compulsory,
            "capacity": self.capacity,
        }


def make_ledger(counts: NDArray[np.int64], unused_at_end: int, *, timed: bool, sized: bool) -> Ledger:
    """The ledger of a run from its integer counts."""
    return Ledger(
        logical=int(counts[LOGICAL]),
        accesses=int(counts[ACCESSES]),
        hits=int(counts[HITS]),
        late=int(counts[LATE]) if timed else None,
        collision=int(counts[COLLISION]),
        compulsory=int(counts[COMPULSORY]),
        capacity=int(counts[CAPACITY]),
        evictions=int(counts[EVICTIONS]),
        bypasses=int(counts[BYPASSES]),
        waves=int(counts[WAVES]),
        demand_bytes=int(counts[DEMAND_BYTES]) if sized else None,
        prefetch_bytes=int(counts[PREFETCH_BYTES]) if sized else None,
        first_load_bytes=int(counts[FIRST_LOAD_BYTES]) if sized else None,
        experts_moved=int(counts[MOVED]),
        prefetch_issued=int(counts[PREFETCH_ISSUED]),
        prefetch_used=int(counts[PREFETCH_USED]),
        prefetch_late=int(counts[PREFETCH_LATE]) if timed else None,
        prefetch_evicted_unused=int(counts[PREFETCH_EVICTED_UNUSED]),
        prefetch_unused_at_end=unused_at_end,
        prefetch_refused=int(counts[PREFETCH_REFUSED]),
        computed_on_host=int(counts[HOST_COMPUTED]),
        lowered=int(counts[LOWERED_COPIES]),
        substituted=int(counts[SUBSTITUTIONS]),
        skipped=int(counts[SKIPS]),
        weight_all=int(counts[WEIGHT_ALL]),
        weight_lowered=int(counts[WEIGHT_LOWERED]),
        weight_substituted=int(counts[WEIGHT_SUBSTITUTED]),
        weight_skipped=int(counts[WEIGHT_SKIPPED]),
    )


def check_conservation(counts: NDArray[np.int64], resident: int, unused_at_end: int) -> None:
    """Raise `RuntimeError` with both numbers when a law is broken. Called at the end of every run."""
    c = counts
    laws = (
        ("hits + misses by kind = accesses", c[HITS] + c[LATE : CAPACITY + 1].sum(), c[ACCESSES]),
        ("insertions − evictions = resident", c[INSERTIONS] - c[EVICTIONS], resident),
        (
            "prefetches issued = used + evicted unused + unused at the end",
            c[PREFETCH_ISSUED],
            c[PREFETCH_USED] + c[PREFETCH_EVICTED_UNUSED] + unused_at_end,
        ),
    )
    for law, left, right in laws:
        if left != right:
            raise RuntimeError(f"the cache miscounted: {law}, but {left} ≠ {right}")
