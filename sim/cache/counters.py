"""Misses of a sequence of ids, nothing else, for policies that need no list to be counted. Twins of the policies.

Whether an id is resident follows from one number kept for each id, so an access is a load, a comparison and a store:

- FIFO: which miss brought it in. It is resident until `capacity` further misses have brought others in.
- LRU: when it was last used. Whoever was last used before the tail of the queue of moments is gone.
- CLOCK: absent, resident, or resident and marked, in one byte.
- Belady: its slot. A slot's key is the next use and the slot's number in one integer, so that the largest key names
  the victim; the largest of each block of slots is kept.

For one pool, equal sizes and the `access` contract; `access_loop.py` chooses, and tests hold each equal to the policy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..bits import lowest_bit
from ..compiled import compiled

_MARK = 2  # of CLOCK's byte; 1 is resident
STRETCH = 2**14  # accesses after which LRU looks again how common misses are
_COMMON = 5  # one in so many, at least
_SLOT_BITS = 31  # of a Belady key, below the next use


@compiled
def fifo_misses(ids: Any, capacity: int, brought_in: Any) -> int:
    """`brought_in` [n]: misses before the one that brought an id in; at first below −capacity."""
    misses = 0
    for j in range(ids.shape[0]):
        x = ids[j]
        was = brought_in[x]
        absent = misses - was > capacity
        brought_in[x] = misses if absent else was  # always stored: a miss costs no mispredicted branch
        misses += absent
    return misses


@compiled
def lru_misses(ids: Any, capacity: int, last_use: Any, live: Any) -> int:
    """`last_use` [n]: 0 at first; `live` [2 + accesses ÷ 64]: zeros, a bit a moment that is still some id's last use.

    Moments count from 64, so that 0 is "never". The moments are the queue: a miss in a full cache moves its tail over
    the first one that is still a last use. Where misses are common, the tail is kept on such a moment with the help of
    the bits, so that moving it is an addition and no branch to be mispredicted; where they are rare, looking is cheaper.
    """
    misses, held, j = 0, 0, 0
    tail: Any = 64
    are_common = False
    while j < ids.shape[0]:
        end = min(j + STRETCH, ids.shape[0])
        before = misses
        if are_common:
            for k in range(j, end):
                now, x = k + 64, ids[k]
                was = np.int64(last_use[x])
                last_use[x] = now
                absent = was < tail
                misses += absent
                live[was >> 6] &= ~(np.uint64(1) << np.uint64(was & 63))
                live[now >> 6] |= np.uint64(1) << np.uint64(now & 63)
                ahead = live[tail >> 6] >> np.uint64(tail & 63)
                while ahead == 0:
                    tail = (tail | 63) + 1
                    ahead = live[tail >> 6]
                evicted = absent & (held == capacity)
                held += absent ^ evicted
                tail += lowest_bit(ahead) + evicted
        else:
            for k in range(j, end):
                now, x = k + 64, ids[k]
                was = np.int64(last_use[x])
                last_use[x] = now
                if was >= tail:
                    continue
                misses += 1
                if held < capacity:
                    held += 1
                    continue
                while last_use[ids[tail - 64]] != tail:
                    tail += 1
                tail += 1
        j = end
        will_be = _COMMON * (misses - before) > STRETCH
        if will_be and not are_common:
            live[tail >> 6 : (j + 64 >> 6) + 1] = 0
            for moment in range(tail, j + 64):
                if last_use[ids[moment - 64]] == moment:
                    live[moment >> 6] |= np.uint64(1) << np.uint64(moment & 63)
        are_common = will_be
    return misses


@compiled
def clock_misses(ids: Any, capacity: int, standing: Any, occupant: Any) -> int:
    """`standing` [n]: 0 at first; `occupant` [capacity]."""
    misses, hand, held = 0, 0, 0
    for j in range(ids.shape[0]):
        x = ids[j]
        if standing[x]:
            standing[x] |= _MARK
            continue
        misses += 1
        standing[x] = 1
        if held < capacity:
            occupant[held] = x
            held += 1
            continue
        y = occupant[hand]
        while standing[y] & _MARK:
            standing[y] = 1
            hand = hand + 1 if hand + 1 < capacity else 0
            y = occupant[hand]
        standing[y] = 0
        occupant[hand] = x
        hand = hand + 1 if hand + 1 < capacity else 0
    return misses


@compiled
def belady_misses(
    ids: Any, next_uses: Any, capacity: int, slot_of: Any, occupant: Any, key: Any, block_key: Any, shift: int
) -> int:
    """`slot_of` [n]: −1 at first; `occupant` [capacity]; `key` [blocks << shift] and `block_key` [blocks]: −1 at first.

    A resident id's next use is never before now, and at its use it is the earliest of all: so a new key only ever
    raises its block's largest, unless it takes the victim's place.
    """
    misses, held = 0, 0
    for j in range(ids.shape[0]):
        x = ids[j]
        slot: Any = np.int64(slot_of[x])
        if slot >= 0 or held < capacity:
            if slot < 0:
                misses += 1
                slot = held
                held += 1
                slot_of[x] = slot
                occupant[slot] = x
            new = np.int64(next_uses[j]) << _SLOT_BITS | slot
            key[slot] = new
            block = slot >> shift
            block_key[block] = max(block_key[block], new)
            continue
        misses += 1
        largest = block_key[0]
        for block in range(1, block_key.shape[0]):
            largest = max(largest, block_key[block])
        slot = largest & ((1 << _SLOT_BITS) - 1)
        slot_of[occupant[slot]] = -1
        slot_of[x] = slot
        occupant[slot] = x
        key[slot] = np.int64(next_uses[j]) << _SLOT_BITS | slot
        block = slot >> shift
        low = block << shift
        largest = key[low]
        for other in range(low + 1, low + (1 << shift)):
            largest = max(largest, key[other])
        block_key[block] = largest
    return misses
