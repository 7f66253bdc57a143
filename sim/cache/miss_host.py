"""Compute a missed expert on the host cores, beside its weights (Fiddler, KTransformers, llama.cpp `--n-cpu-moe`).

While its pool has room an expert is loaded, so that the cache fills; afterwards `when=always` moves nothing on demand,
and `when=cheaper` (Fiddler's rule) asks, for the tokens that chose the expert, whether the host computes it in no
more time than copying and computing it on the device takes. One expert after another, on all host cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiled import inlined
from .plan import TOKENS
from .state import CAPACITY, POOL, USED


@inlined
def room(s: Any, layer: int) -> int:
    pool = s.layer[POOL, layer]
    return s.pool[CAPACITY, pool] - s.pool[USED, pool]


@inlined
def takes(plan: Any, i: int, layer: int, table: Any) -> bool:
    return table[layer, plan.member[TOKENS, i]] != 0


def host_table(
    when: str, host_ns: NDArray[np.int64], expert_ns: NDArray[np.int64], copy_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """[L, N + 1] 1 where the host computes n tokens of a layer's expert. `host_ns`, `expert_ns` [L, N + 1], `copy_ns` [L]."""
    if when == "always":
        return np.ones_like(host_ns)
    return (host_ns <= expert_ns + copy_ns[:, None]).astype(np.int64)
