"""Least frequently used: fewest uses since it was brought in; ties to the least recent use.

Buckets of equal count form a list in ascending count; inside a bucket entries stand in order of their last
use, because each use moves an entry to the young end of the next bucket. Every operation takes constant time.
The count of an expert is forgotten when it is evicted (in-cache LFU).
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .state import PIN, SCALAR

# Rows of `links`: an entry's neighbours and bucket; a bucket's count, ends and neighbours; the free buckets
_NEXT, _PREVIOUS, _BUCKET, _COUNT, _OLDEST, _YOUNGEST, _HIGHER, _LOWER, _FREE = range(9)
_LOWEST = SCALAR  # row of pool: the bucket of the smallest count, −1 when the pool is empty
_FREE_TOP, _MADE = SCALAR + 1, SCALAR + 2  # of pool 0: free buckets stacked, buckets ever made


@inlined
def _new_bucket(s: Any, count: int, lower: int, higher: int, pool: int) -> int:
    links, shared = s.links, s.pool[:, 0]
    if shared[_FREE_TOP] > 0:
        shared[_FREE_TOP] -= 1
        bucket = links[_FREE, shared[_FREE_TOP]]
    else:
        shared[_MADE] = max(shared[_MADE], 0)
        bucket = shared[_MADE]
        shared[_MADE] += 1
    links[_COUNT, bucket] = count
    links[_OLDEST, bucket] = -1
    links[_YOUNGEST, bucket] = -1
    links[_LOWER, bucket] = lower
    links[_HIGHER, bucket] = higher
    if lower >= 0:
        links[_HIGHER, lower] = bucket
    else:
        s.pool[_LOWEST, pool] = bucket
    if higher >= 0:
        links[_LOWER, higher] = bucket
    return bucket


@inlined
def _append(links: Any, x: int, bucket: int) -> None:
    last = links[_YOUNGEST, bucket]
    links[_PREVIOUS, x] = last
    links[_NEXT, x] = -1
    links[_BUCKET, x] = bucket
    if last >= 0:
        links[_NEXT, last] = x
    else:
        links[_OLDEST, bucket] = x
    links[_YOUNGEST, bucket] = x


@inlined
def _remove(s: Any, x: int, pool: int) -> None:
    """Take x out of its bucket; an empty bucket is given back."""
    links = s.links
    bucket, before, after = links[_BUCKET, x], links[_PREVIOUS, x], links[_NEXT, x]
    if before >= 0:
        links[_NEXT, before] = after
    else:
        links[_OLDEST, bucket] = after
    if after >= 0:
        links[_PREVIOUS, after] = before
    else:
        links[_YOUNGEST, bucket] = before
    if links[_OLDEST, bucket] < 0:
        lower, higher = links[_LOWER, bucket], links[_HIGHER, bucket]
        if lower >= 0:
            links[_HIGHER, lower] = higher
        else:
            s.pool[_LOWEST, pool] = higher
        if higher >= 0:
            links[_LOWER, higher] = lower
        shared = s.pool[:, 0]
        shared[_FREE_TOP] = max(shared[_FREE_TOP], 0)
        links[_FREE, shared[_FREE_TOP]] = bucket
        shared[_FREE_TOP] += 1


@inlined
def hit(s: Any, x: int, pool: int) -> None:
    links = s.links
    bucket = links[_BUCKET, x]
    count, higher = links[_COUNT, bucket], links[_HIGHER, bucket]
    next_exists = higher >= 0 and links[_COUNT, higher] == count + 1
    if links[_OLDEST, bucket] == x and links[_YOUNGEST, bucket] == x and not next_exists:
        links[_COUNT, bucket] = count + 1  # alone in its bucket: the bucket itself moves up
        return
    target = higher if next_exists else _new_bucket(s, count + 1, bucket, higher, pool)
    _remove(s, x, pool)
    _append(links, x, target)


@inlined
def insert(s: Any, x: int, pool: int) -> None:
    lowest = s.pool[_LOWEST, pool]
    if lowest < 0 or s.links[_COUNT, lowest] != 1:
        lowest = _new_bucket(s, 1, -1, lowest, pool)
    _append(s.links, x, lowest)


@inlined
def evict(s: Any, x: int, pool: int) -> None:
    _remove(s, x, pool)


@inlined
def victim(s: Any, pool: int) -> int:
    bucket = s.pool[_LOWEST, pool]
    while bucket >= 0:
        x = s.links[_OLDEST, bucket]
        while x >= 0:
            if not s.expert[PIN, x]:
                return x
            x = s.links[_NEXT, x]
        bucket = s.links[_HIGHER, bucket]
    return -1
