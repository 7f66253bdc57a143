"""The plain arrays that the cache core and every policy work on.

An expert is a number x = layer index × experts per layer + expert id, 0 … n−1, so ascending x is "layer, then
expert id", the written order of ties. A pool is what shares capacity: one for all layers (scope `global`) or
one per layer (scope `layer`). A slot is a place on the device; slots of a pool are contiguous.

Few and wide: compiled code hands a tuple over array by array, so each array costs at every call. What is alike
is a row of one array, and the row's name says what it holds.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import inlined

NEVER = np.int32(2**31 - 1)  # "no next use": later than any event

# Rows of CacheState.expert; SLOT holds the slot + 1, so that 0 is "not resident"
SLOT, PIN, MOVED, UNUSED_PREFETCH, BIT, NEXT, PREVIOUS, POOL_OF, LAYER_OF = range(9)
EXPERT_ROWS = 9
# Rows of CacheState.when
NEXT_USE, LAST_USE, USE_COUNT, EVICT_PASS = range(4)
PRIORITY = NEXT_USE  # the same row, for policies that do not know the future
# Rows of CacheState.slot
OCCUPANT, FREE, KEY = range(3)
# Rows of CacheState.pool; the last eight are the policy's own
CAPACITY, USED, SLOT_START, SLOT_END, FREE_COUNT, SCALAR = range(6)
POOL_ROWS = SCALAR + 8
# Rows of CacheState.layer; the last two are the policy's own
POOL, SIZE, LAYER_SCALAR = range(3)
LAYER_ROWS = LAYER_SCALAR + 2
# Columns of CacheState.clock
EVENT, PASS, LAYER = range(3)

LINK_ROWS = 9
FURTHER_LISTS = 4  # of each pool, for policies that divide it
KEY_BLOCK = 64  # slots whose largest key is kept beside them


class CacheState(NamedTuple):
    """Everything a cache knows. n experts, P pools, C slots, L layers."""

    expert: NDArray[np.unsignedinteger]
    """[EXPERT_ROWS, n + 5 P + L]. The last columns are heads of lists (NEXT, PREVIOUS): one a pool, one a layer, and
    then four further ones a pool.
    Unsigned, so that a number read from it is an index at once: numba tests signed ones for being negative."""
    when: NDArray[np.int64]
    """[4, n] event of the next use (without future knowledge a number of the policy's own, NEVER at first), what a policy
    remembers of the last use, uses since brought in, pass of the last eviction (−1 none)."""
    slot: NDArray[np.int32]
    """[3, C] expert in it (−1 free), a stack of free slots per pool, a policy's key."""
    block_key: NDArray[np.int32]
    """[⌈C ÷ KEY_BLOCK⌉] largest key of each block of slots."""
    pool: NDArray[np.int64]
    """[POOL_ROWS, P] capacity and use in the unit of SIZE, its slots, free slots, then policy scalars (−1 at first)."""
    layer: NDArray[np.int64]
    """[LAYER_ROWS, L] its pool, bytes of one expert (or 1 each when no bytes are known), then policy scalars (0 at first)."""
    links: NDArray[np.int32]
    """[LINK_ROWS, n] other lists that a policy keeps."""
    clock: NDArray[np.int64]
    """[3] event, pass, layer index."""
    parameter: NDArray[np.int64]
    """[4] the policy's own settings."""
    random_state: NDArray[np.uint64]
    """[1]"""


@inlined
def slot_of(s: Any, x: int) -> int:
    """The slot of an expert, −1 when it is not resident."""
    slot: int = np.int64(s.expert[SLOT, x]) - 1  # type: ignore[assignment]
    return slot


@inlined
def pool_list(s: Any, pool: int) -> int:
    """The column that heads a pool's list."""
    return s.when.shape[1] + pool


@inlined
def layer_list(s: Any, layer: int) -> int:
    """The column that heads a layer's list."""
    return s.when.shape[1] + s.pool.shape[1] + layer


@inlined
def further_list(s: Any, pool: int, which: int) -> int:
    """The column that heads one of a pool's further lists, 1 … FURTHER_LISTS."""
    return s.when.shape[1] + s.layer.shape[1] + which * s.pool.shape[1] + pool


def new_state(
    *,
    num_layers: int,
    num_experts: int,
    capacity_per_pool: NDArray[np.int64],
    size_per_layer: NDArray[np.int64],
    parameters: tuple[int, ...] = (),
    rng: np.random.Generator | None = None,
    narrow: bool = False,
) -> CacheState:
    """An empty cache. `capacity_per_pool` has 1 entry (one pool) or one per layer, in the unit of the sizes.

    An expert's numbers lie side by side, because an event touches most of them. With `narrow` each row lies by itself,
    in 16 bits where they fit: for loops that touch two or three rows only, which then stay in the first-level cache.
    """
    n, pools = num_layers * num_experts, len(capacity_per_pool)
    columns = n + pools + num_layers + FURTHER_LISTS * pools
    layer = np.zeros((LAYER_ROWS, num_layers), np.int64)
    layer[POOL] = 0 if pools == 1 else np.arange(num_layers)
    layer[SIZE] = size_per_layer
    order: Literal["C", "F"] = "C" if narrow else "F"
    kind = np.uint16 if narrow and columns < 2**16 else np.uint32
    expert = np.zeros((EXPERT_ROWS, columns), kind, order)
    expert[LAYER_OF, :n] = np.repeat(np.arange(num_layers), num_experts)
    expert[POOL_OF, :n] = layer[POOL][expert[LAYER_OF, :n]]
    expert[NEXT, n:] = expert[PREVIOUS, n:] = np.arange(n, columns)
    pool = np.full((POOL_ROWS, pools), -1, np.int64)
    pool[CAPACITY], pool[USED] = capacity_per_pool, 0
    for p in range(pools):
        smallest = int(size_per_layer[layer[POOL] == p].min())
        members = int((layer[POOL] == p).sum()) * num_experts
        pool[FREE_COUNT, p] = min(int(capacity_per_pool[p]) // smallest, members)
    pool[SLOT_END] = np.cumsum(pool[FREE_COUNT])
    pool[SLOT_START] = pool[SLOT_END] - pool[FREE_COUNT]
    slots = int(pool[SLOT_END, -1])
    slot = np.full((3, slots), -1, np.int32)
    for low, high in zip(pool[SLOT_START], pool[SLOT_END], strict=True):
        slot[FREE, low:high] = np.arange(high - 1, low - 1, -1)  # popped from the end: slots fill in order
    when = np.full((4, n), -1, np.int64, order)
    when[NEXT_USE], when[USE_COUNT] = NEVER, 0
    parameter = np.zeros(4, np.int64)
    parameter[: len(parameters)] = parameters
    seed = (rng or np.random.default_rng(0)).integers(1, 2**63, dtype=np.uint64)
    return CacheState(
        expert=expert,
        when=when,
        slot=slot,
        block_key=np.full(-(-slots // KEY_BLOCK), -1, np.int32),
        pool=pool,
        layer=layer,
        links=np.full((LINK_ROWS, n), -1, np.int32),
        clock=np.full(3, -1, np.int64),
        parameter=parameter,
        random_state=np.array([seed], np.uint64),
    )
