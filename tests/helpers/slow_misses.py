"""What becomes of the misses of an event, slow and obvious."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from slow_base import Slow


def slow_misses(cache: Slow, members: list[int], resident: list[int], count: Counter[str]) -> dict[int, Any]:
    """Missed expert → "host", "lower", "skip" or the expert that stands in; who is not named is loaded."""
    miss = cache.setup.miss
    if miss.name == "load":
        return {}
    served: dict[int, Any] = {}
    pool = cache.pool(members[0]) if members else 0
    room = int(cache.setup.capacity_per_pool[pool]) - sum(cache.pool(y) == pool for y in cache.inside)
    for x in members:
        if x in resident:
            continue
        shares = cache.shares(x) if miss.needs_weights else []
        if miss.name == "host":
            if room > 0 and cache.admits(x):
                room -= 1
            else:
                served[x] = "host"
        elif miss.name == "lower":
            if all(heavier >= math.ceil(float(miss.setting("above")) * 2**14) for _, heavier in shares):
                served[x] = "lower"
        elif all(share < math.ceil(float(miss.setting("below")) * 2**14) for share, _ in shares):
            if miss.name == "skip":
                served[x] = "skip"
            else:
                free = [y for y in cache.inside if y not in members and y not in served.values()]
                best = max(free, key=lambda y: (cache.together[x, y], -y), default=None)
                if best is not None and cache.together[x, best] > 0:
                    served[x] = best
        if x in served:
            count[miss.name] += 1
            count["weight"] += sum(share for share, _ in shares)
    return served
