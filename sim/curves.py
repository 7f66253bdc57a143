"""Misses at every capacity from one pass over the accesses, for policies with the inclusion property.

A policy has it when what it keeps at a capacity it also keeps at every larger one (Mattson et al. 1970). Then each
access has one number, its stack distance: the smallest capacity at which it is a hit. One histogram of them is the
whole curve. LRU has it, the Belady that must admit (OPT) has it, and so does a static hot set.

For the `access` contract, one access after another: under `slots` and `fused` the order inside an event is hits before
misses, which depends on the capacity, so inclusion does not hold in general. A static set never changes, so its curve
holds under every contract.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import unknown_name
from .cache.access_loop import count_misses, next_accesses
from .cache.registry import policy as policy_named
from .cache.stack_distance import GROUP, WORD, belady_distances, lru_distances
from .cache.state import NEVER

CURVES = ("lru", "belady-mandatory", "static")
COUNTED = ("fifo", "clock", "lfu")
"""No inclusion property: a smaller cache may hold what a larger one does not. Counted capacity by capacity."""


def lru_misses(ids: NDArray[np.integer], num_ids: int) -> NDArray[np.int64]:
    """[num_ids + 1] misses of LRU at each capacity 0 … num_ids, over a sequence of ids 0 … num_ids − 1.

    Some ten nanoseconds an access: each id's last use is a bit, and distances are sums over bits, words and groups of
    words, which stay in the nearest cache and are summed several at a time.
    """
    groups = max(2, -(-2 * num_ids // GROUP))
    moments = groups * GROUP
    histogram = np.zeros(num_ids + 1, np.int64)
    lru_distances(
        np.ascontiguousarray(ids, np.int32), np.full(num_ids, -1, np.int32), np.zeros(moments, np.int32),
        np.zeros(moments // WORD, np.uint64), np.zeros(moments // WORD, np.int32), np.zeros(groups, np.int32), histogram,
    )  # fmt: skip
    return _curve(histogram, len(ids))


def belady_misses(
    ids: NDArray[np.integer], num_ids: int, next_uses: NDArray[np.int32] | None = None
) -> NDArray[np.int64]:
    """[num_ids + 1] misses of the Belady that must admit, at each capacity. Takes time with the depth of the stack.

    `next_uses` is from `next_accesses`, and is computed where it is not given.
    """
    future = next_accesses(ids, num_ids) if next_uses is None else next_uses
    histogram = np.zeros(num_ids + 1, np.int64)
    belady_distances(
        np.ascontiguousarray(ids, np.int32), future, np.full(num_ids, -1, np.int32), np.zeros(num_ids, np.int32),
        np.full(num_ids, NEVER, np.int32), histogram,
    )  # fmt: skip
    return _curve(histogram, len(ids))


def static_misses(uses: NDArray[np.integer]) -> NDArray[np.int64]:
    """[n + 1] misses of the hot set of each size, from how often each of n ids is used; its first load is no miss."""
    ordered = np.sort(np.asarray(uses, np.int64))[::-1]
    misses: NDArray[np.int64] = np.concatenate(([0], -np.cumsum(ordered))) + ordered.sum()
    return misses


def _curve(histogram: NDArray[np.int64], accesses: int) -> NDArray[np.int64]:
    """Misses from how often each stack distance occurs (index 0 stays empty): an access hits from its distance on."""
    misses: NDArray[np.int64] = accesses - np.cumsum(histogram)
    return misses


def miss_curve(policy: str, ids: NDArray[np.integer], num_ids: int) -> NDArray[np.int64]:
    """[num_ids + 1] misses at each capacity by a policy's name. Raises `UsageError` where one pass cannot tell."""
    if policy == "lru":
        return lru_misses(ids, num_ids)
    if policy == "belady-mandatory":
        return belady_misses(ids, num_ids)
    if policy == "static":
        return static_misses(np.bincount(ids, minlength=num_ids))
    raise unknown_name("policy with a curve in one pass", policy, CURVES)


def misses_at(
    policy: str, ids: NDArray[np.integer], num_ids: int, capacities: Sequence[int]
) -> NDArray[np.int64]:
    """Misses at some capacities, in one pass where the policy allows it. Raises `UsageError` for another policy."""
    if policy in CURVES:
        return miss_curve(policy, ids, num_ids)[np.minimum(capacities, num_ids)]
    if policy in COUNTED:
        chosen = policy_named(policy)
        return np.array([count_misses(ids, num_ids, capacity, chosen) for capacity in capacities], np.int64)
    raise unknown_name("policy with a curve", policy, (*CURVES, *COUNTED))
