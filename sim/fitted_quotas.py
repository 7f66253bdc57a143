"""Layer quotas fitted to a trace's training part: the division of a capacity with the fewest loads there.

AdapMoE (arXiv 2408.10284) divides a cache over layers by dynamic programming over each layer's expected loads, which it
models from activation probabilities and prefetch accuracy. Here each layer's loads at every quota are counted: LRU's misses
on the training part, from one pass of stack distances (accesses one by one, `sim/curves.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .curves import lru_misses


def layer_curves(ids: NDArray[np.integer], num_layers: int, num_experts: int) -> NDArray[np.int64]:
    """[L, N + 1] loads of each layer at quotas 0 … N, from accesses as expert numbers (layer · N + id)."""
    layer_of = ids // num_experts
    return np.stack([lru_misses(ids[layer_of == layer] % num_experts, num_experts) for layer in range(num_layers)])


def fitted_quotas(loads_LQ: NDArray[np.int64], experts: int, least: int) -> NDArray[np.int64]:
    """[L] quotas of at least `least` that sum to `experts` with the fewest loads in all; of equals, the lower layers' smaller.

    Exact for any curves, in time L · experts · N. Raises `UsageError` where no such quotas exist.
    """
    layers, most = loads_LQ.shape[0], loads_LQ.shape[1] - 1
    if not layers * least <= experts <= layers * most:
        raise UsageError(f"{experts} experts cannot be divided over {layers} layers of {least} to {most} each")
    far = np.iinfo(np.int64).max // 2
    best_C = np.full(experts + 1, far)  # fewest loads of the layers from the present one on, by what they hold together
    best_C[0] = 0
    chosen_LC = np.zeros((layers, experts + 1), np.int32)
    for layer in reversed(range(layers)):
        found_C = np.full(experts + 1, far)
        for quota in range(least, min(most, experts) + 1):
            total = best_C[: experts + 1 - quota] + loads_LQ[layer, quota]
            better = total < found_C[quota:]
            found_C[quota:][better] = total[better]
            chosen_LC[layer, quota:][better] = quota
        best_C = np.minimum(found_C, far)
    quotas, left = np.zeros(layers, np.int64), experts
    for layer in range(layers):
        quotas[layer] = chosen_LC[layer, left]
        left -= int(quotas[layer])
    return quotas
