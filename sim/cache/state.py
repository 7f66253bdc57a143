"""The plain arrays that the cache core and every policy work on.

An expert is a number x = layer index × experts per layer + expert id, 0 … n−1, so ascending x is "layer, then
expert id", the written order of ties. A pool is what shares capacity: one for all layers (scope `global`) or
one per layer (scope `layer`). A slot is a place on the device; slots of a pool are contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

NEVER = np.int32(2**31 - 1)  # "no next use": later than any event

# Columns of CacheState.clock
EVENT, PASS, LAYER = 0, 1, 2
# Columns of CacheState.pool_scalar that the core owns; a policy may use the others
POLICY_SCALARS = 8
LINK_ROWS = 9
KEY_BLOCK = 64  # slots whose largest key is kept beside them


class CacheState(NamedTuple):
    """Everything a cache knows. n experts, P pools, C slots, L layers."""

    slot_of: NDArray[np.int32]  # [n] slot, −1 when not resident
    occupant: NDArray[np.int32]  # [C] expert in a slot, −1 when free
    pin: NDArray[np.uint8]  # [n] 1: may not be evicted now
    size: NDArray[np.int64]  # [n] bytes (or 1 each when no bytes are known)
    pool_of: NDArray[np.int32]  # [n]
    layer_of: NDArray[np.int32]  # [n]
    layer_pool: NDArray[np.int32]  # [L] pool of a layer
    capacity: NDArray[np.int64]  # [P] in the unit of size
    used: NDArray[np.int64]  # [P]
    slot_start: NDArray[np.int64]  # [P + 1]
    free_slots: NDArray[np.int32]  # [C] a stack per pool
    free_count: NDArray[np.int64]  # [P]
    moved: NDArray[np.uint8]  # [n] 1: was copied to the device before, in this run
    evict_pass: NDArray[np.int64]  # [n] pass of its last eviction, −1: none
    unused_prefetch: NDArray[np.uint8]  # [n] 1: prefetched and not used since
    clock: NDArray[np.int64]  # [3] event, pass, layer index
    next_use: NDArray[np.int32]  # [n] event of the next use; all NEVER without future knowledge
    # what policies keep
    chain: NDArray[np.uint32]  # [2, n + P] a linked list a pool; column n + p is the sentinel of pool p. Unsigned,
    # so that a number read from it is an index at once: numba tests signed ones for being negative
    links: NDArray[np.int32]  # [R, n] other lists that a policy keeps
    last_use: NDArray[np.int64]  # [n]
    use_count: NDArray[np.int64]  # [n]
    bit: NDArray[np.uint8]  # [n]
    slot_key: NDArray[np.int32]  # [C]
    block_key: NDArray[np.int32]  # [⌈C ÷ KEY_BLOCK⌉] largest slot_key of each block
    pool_scalar: NDArray[np.int64]  # [P, POLICY_SCALARS]
    layer_count: NDArray[np.int64]  # [L, 2]
    random_state: NDArray[np.uint64]  # [1]
    parameter: NDArray[np.int64]  # [4] the policy's own settings


def new_state(
    *,
    num_layers: int,
    num_experts: int,
    capacity_per_pool: NDArray[np.int64],
    size_per_layer: NDArray[np.int64],
    parameters: tuple[int, ...] = (),
    rng: np.random.Generator | None = None,
) -> CacheState:
    """An empty cache. `capacity_per_pool` has 1 entry (one pool) or one per layer, in the unit of the sizes."""
    n, pools = num_layers * num_experts, len(capacity_per_pool)
    layer_of = np.repeat(np.arange(num_layers, dtype=np.int32), num_experts)
    layer_pool = np.zeros(num_layers, np.int32) if pools == 1 else np.arange(num_layers, dtype=np.int32)
    size = size_per_layer[layer_of].astype(np.int64)
    pool_of = layer_pool[layer_of]
    slots_per_pool = np.empty(pools, np.int64)
    for pool in range(pools):
        smallest = int(size_per_layer[layer_pool == pool].min())
        slots_per_pool[pool] = min(int(capacity_per_pool[pool]) // smallest, int((pool_of == pool).sum()))
    slot_start = np.concatenate(([0], np.cumsum(slots_per_pool))).astype(np.int64)
    slots = int(slot_start[-1])
    free_slots = np.empty(slots, np.int32)
    for pool in range(pools):
        low, high = slot_start[pool], slot_start[pool + 1]
        free_slots[low:high] = np.arange(high - 1, low - 1, -1)  # popped from the end: slots fill in order
    chain = np.zeros((2, n + pools), np.uint32)
    chain[:, n:] = np.arange(n, n + pools)
    parameter = np.zeros(4, np.int64)
    parameter[: len(parameters)] = parameters
    seed = (rng or np.random.default_rng(0)).integers(1, 2**63, dtype=np.uint64)
    return CacheState(
        slot_of=np.full(n, -1, np.int32),
        occupant=np.full(slots, -1, np.int32),
        pin=np.zeros(n, np.uint8),
        size=size,
        pool_of=pool_of,
        layer_of=layer_of,
        layer_pool=layer_pool,
        capacity=np.array(capacity_per_pool, np.int64),
        used=np.zeros(pools, np.int64),
        slot_start=slot_start,
        free_slots=free_slots,
        free_count=slots_per_pool,
        moved=np.zeros(n, np.uint8),
        evict_pass=np.full(n, -1, np.int64),
        unused_prefetch=np.zeros(n, np.uint8),
        clock=np.full(3, -1, np.int64),
        next_use=np.full(n, NEVER, np.int32),
        chain=chain,
        links=np.full((LINK_ROWS, n), -1, np.int32),
        last_use=np.full(n, -1, np.int64),
        use_count=np.zeros(n, np.int64),
        bit=np.zeros(n, np.uint8),
        slot_key=np.full(slots, -1, np.int32),
        block_key=np.full(-(-slots // KEY_BLOCK), -1, np.int32),
        pool_scalar=np.full((pools, POLICY_SCALARS), -1, np.int64),
        layer_count=np.zeros((num_layers, 2), np.int64),
        random_state=np.array([seed], np.uint64),
        parameter=parameter,
    )
