"""The `access` contract for a plain sequence of ids: one access after another, nothing but misses counted.

The same policy functions as everywhere; only the loop is thin. It is compiled once for each policy (the code is
a literal), which is what makes it quick. A property test holds it equal to the cache core. Four policies have a
counter of their own (`counters.py`), which is held equal to this loop.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import literally
from numpy.typing import NDArray

from ..compiled import compiled
from . import counters
from .registry import Policy
from .state import EVENT, NEVER, NEXT_USE, OCCUPANT, SLOT, new_state
from .switch import (
    BELADY,
    CLOCK,
    FIFO,
    LRU,
    admits,
    needs_clock,
    on_evict,
    on_hit,
    on_insert,
    prefers,
    victim,
)


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
    future = np.zeros(0, np.int32)
    if policy.needs_future:
        future = next_accesses(ids, num_ids) if next_uses is None else next_uses
    if policy.code in _COUNTERS and 0 < capacity < num_ids:
        return _COUNTERS[policy.code](_unsigned(ids), num_ids, capacity, future)
    return count_with_policy(ids, num_ids, capacity, policy, future, rng)


def count_with_policy(
    ids: NDArray[np.integer],
    num_ids: int,
    capacity: int,
    policy: Policy,
    future: NDArray[np.int32],
    rng: np.random.Generator | None = None,
) -> int:
    """The same with the policy's own functions; `future` is empty where the policy does not ask for it."""
    state = new_state(
        num_layers=1,
        num_experts=num_ids,
        capacity_per_pool=np.array([capacity], np.int64),
        size_per_layer=np.ones(1, np.int64),
        parameters=policy.parameters,
        rng=rng,
        narrow=True,
    )
    return int(_count(policy.code, state, _unsigned(ids), future, min(capacity, num_ids)))


def _unsigned(ids: NDArray[np.integer]) -> NDArray[np.uint32]:
    """The same ids as numbers that compiled code need not test for being negative; not copied where they have 32 bits."""
    as_they_are = ids.dtype.itemsize == 4 and ids.flags.c_contiguous
    return ids.view(np.uint32) if as_they_are else ids.astype(np.uint32)


def _moments(ids: NDArray[np.uint32]) -> type[np.signedinteger]:
    """A type that counts a sequence's accesses; the small one keeps an id's number in the nearest cache."""
    return np.int32 if len(ids) < NEVER - 64 else np.int64


def _fifo(ids: NDArray[np.uint32], num_ids: int, capacity: int, future: NDArray[np.int32]) -> int:
    return int(counters.fifo_misses(ids, capacity, np.full(num_ids, -capacity - 1, _moments(ids))))


def _lru(ids: NDArray[np.uint32], num_ids: int, capacity: int, future: NDArray[np.int32]) -> int:
    live = np.zeros(2 + len(ids) // 64, np.uint64)
    return int(counters.lru_misses(ids, capacity, np.zeros(num_ids, _moments(ids)), live))


def _clock(ids: NDArray[np.uint32], num_ids: int, capacity: int, future: NDArray[np.int32]) -> int:
    return int(counters.clock_misses(ids, capacity, np.zeros(num_ids, np.uint8), np.zeros(capacity, np.uint32)))


def _belady(ids: NDArray[np.uint32], num_ids: int, capacity: int, future: NDArray[np.int32]) -> int:
    shift = max(4, (capacity - 1).bit_length() // 2)  # as many blocks as slots in one, about
    blocks = -(-capacity >> shift)
    return int(
        counters.belady_misses(
            ids, future, capacity, np.full(num_ids, -1, np.int32), np.zeros(capacity, np.uint32),
            np.full(blocks << shift, -1, np.int64), np.full(blocks, -1, np.int64), shift,
        )
    )  # fmt: skip


_COUNTERS = {FIFO: _fifo, LRU: _lru, CLOCK: _clock, BELADY: _belady}
