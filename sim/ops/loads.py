"""How tokens fall on experts: what a rank holds of them, in expectation, under a named distribution.

- `uniform`: each token draws K of N experts, independently of the others. E(T) = N·(1 − (1 − K/N)^T) touched.
- `balanced`: loads as even as they can be: min(N, T·K) touched.
- `power_law_A`: the load of the expert at rank r of N falls as a power law of exponent A cut at [1, 0.8·T], which is
  how the published MoE tables say that they drew theirs (their `distribution` column).
"""

from __future__ import annotations

import numpy as np

from ...errors import UsageError
from ._work import Floats, Size, number


def exponent_of(distribution: str) -> float | None:
    """The exponent of a power law's name, None for an even distribution. Raises `UsageError` on another name."""
    if distribution in ("uniform", "balanced"):
        return None
    head, _, tail = distribution.rpartition("_")
    try:
        if head == "power_law" and 0.0 < float(tail) < 10.0:
            return float(tail)
    except ValueError:
        pass
    raise UsageError(
        f"unknown load distribution {distribution!r}; known: uniform, balanced, power_law_EXPONENT"
    )


def expected_loads(
    tokens: Size, num_experts: Size, top_k: Size, ep: Size, distribution: str
) -> tuple[Floats, Floats]:
    """(distinct experts touched on a rank, the largest load of one expert), each a number or [R].

    Of `ep` ranks every one gets the same share: the hottest rank of a skewed load has more.
    """
    T, N, K, E = np.broadcast_arrays(number(tokens), number(num_experts), number(top_k), number(ep))
    exponent = exponent_of(distribution)
    mean = T * K / N
    if distribution == "uniform":
        share = np.clip(K / N, 0.0, 1.0)
        return np.asarray(N * (1.0 - (1.0 - share) ** T) / E), np.asarray(mean)
    if exponent is None:
        return np.asarray(np.minimum(N, T * K) / E), np.asarray(np.maximum(np.ceil(mean), 1.0))
    keys, where = np.unique(np.stack([T, N, K], axis=-1).reshape(-1, 3), axis=0, return_inverse=True)
    rows = np.array([_power_law(t, n, k, exponent) for t, n, k in keys])[where.reshape(-1)]
    return np.asarray(rows[:, 0].reshape(T.shape) / E), np.asarray(rows[:, 1].reshape(T.shape))


def power_law_loads(tokens: float, num_experts: int, top_k: float, exponent: float) -> Floats:
    """Tokens of each expert [N], largest first: quantiles of the cut power law, scaled to T·K, no load above T."""
    high = max(0.8 * tokens, 1.0 + 1e-9)
    u = (np.arange(num_experts) + 0.5) / num_experts
    e = 1.0 - exponent
    x = (1.0 + u * (high**e - 1.0)) ** (1.0 / e) if abs(e) > 1e-9 else high**u
    loads = np.sort(x)[::-1]
    total = tokens * top_k
    for _ in range(8):  # what exceeds T spills over to the others; a few rounds settle it
        loads = np.minimum(loads * (total / loads.sum()), tokens)
    return np.asarray(loads)


def _power_law(tokens: float, num_experts: float, top_k: float, exponent: float) -> tuple[float, float]:
    loads = power_law_loads(tokens, int(num_experts), top_k, exponent)
    share = np.clip(loads / max(tokens, 1.0), 0.0, 1.0)
    return float((1.0 - (1.0 - share) ** tokens).sum()), float(loads[0])
