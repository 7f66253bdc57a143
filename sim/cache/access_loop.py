"""The `access` contract for a plain sequence of ids: one access after another, nothing but misses counted.

The same policy functions as everywhere; only the loop is thin. It is compiled once for each policy (the code is
a literal), which is what makes it quick. A property test holds it equal to the cache core.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import literally
from numpy.typing import NDArray

from ..compiled import compiled
from .registry import Policy
from .state import EVENT, NEVER, NEXT_USE, OCCUPANT, SLOT, new_state
from .switch import admits, needs_clock, on_evict, on_hit, on_insert, prefers, victim


@compiled
def _count(code: int, s: Any, ids: Any, next_uses: Any, capacity: int) -> int:
    literally(code)
    misses, used = 0, 0
    place: Any = 0
    has_future = next_uses.shape[0] > 0
    for j in range(ids.shape[0]):
        x = ids[j]
        if needs_clock(code):
            s.clock[EVENT] = j
        if has_future:
            s.when[NEXT_USE, x] = next_uses[j]
        if s.expert[SLOT, x]:
            on_hit(code, s, x, 0)
            continue
        misses += 1
        if capacity == 0 or not admits(code, s, x):
            continue
        if used < capacity:
            used += 1
            place = used
        else:
            y = victim(code, s, 0, x)
            if not prefers(code, s, x, y):
                continue
            on_evict(code, s, y, 0)
            place = np.int64(s.expert[SLOT, y])
            s.expert[SLOT, y] = 0
        s.expert[SLOT, x] = place
        s.slot[OCCUPANT, place - 1] = x
        on_insert(code, s, x, 0, False)
    return misses


@compiled
def _next_uses(ids: Any, latest: Any, uses: Any) -> None:
    for j in range(ids.shape[0] - 1, -1, -1):
        uses[j] = latest[ids[j]]
        latest[ids[j]] = j


def next_accesses(ids: NDArray[np.integer], num_ids: int) -> NDArray[np.int32]:
    """[A] the next access of each access's id, `NEVER` for none."""
    uses = np.empty(len(ids), np.int32)
    _next_uses(ids, np.full(num_ids, NEVER, np.int32), uses)
    return uses


def count_misses(
    ids: NDArray[np.integer],
    num_ids: int,
    capacity: int,
    policy: Policy,
    *,
    next_uses: NDArray[np.int32] | None = None,
    rng: np.random.Generator | None = None,
) -> int:
    """Misses of a sequence of ids (0 … num_ids − 1) in a cache of `capacity` equal entries.

    `next_uses` (from `next_accesses`) may be given so that several capacities share it; policies that need the
    future compute it otherwise.
    """
    state = new_state(
        num_layers=1,
        num_experts=num_ids,
        capacity_per_pool=np.array([capacity], np.int64),
        size_per_layer=np.ones(1, np.int64),
        parameters=policy.parameters,
        rng=rng,
        narrow=True,
    )
    future = np.zeros(0, np.int32)
    if policy.needs_future:
        future = next_accesses(ids, num_ids) if next_uses is None else next_uses
    return int(_count(policy.code, state, np.asarray(ids, np.uint32), future, min(capacity, num_ids)))
