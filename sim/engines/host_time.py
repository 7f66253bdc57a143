"""How long the host cores take for one routed expert, from a roof: read its weights once, or do the arithmetic."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError


def host_expert_ns(
    weight_bytes_C: NDArray[np.integer],
    token_flops_C: NDArray[np.integer],
    most_tokens: int,
    *,
    host_bytes_per_s: float,
    host_flops_per_s: float,
    efficiency: float = 1.0,
) -> NDArray[np.int64]:
    """[C, most_tokens + 1] nanoseconds for n tokens, rounded up; column 0 is 0. What `Setup.host_expert_ns_CN` wants.

    `weight_bytes_C` are the bytes of one expert of each cost class where the host keeps it, `token_flops_C` its work for one
    token. `efficiency` is the share of both roofs that the host reaches; measured times are better where there are some.
    Raises `UsageError` for rates or an efficiency that are not positive.
    """
    for name, value in (
        ("host_bytes_per_s", host_bytes_per_s),
        ("host_flops_per_s", host_flops_per_s),
        ("efficiency", efficiency),
    ):
        if not value > 0:
            raise UsageError(f"{name} must be above 0, got {value}")
    tokens = np.arange(most_tokens + 1)
    read_s = np.asarray(weight_bytes_C, np.float64)[:, None] / host_bytes_per_s
    work_s = np.asarray(token_flops_C, np.float64)[:, None] * tokens / host_flops_per_s
    nanoseconds = np.ceil(np.maximum(read_s, work_s) / efficiency * 1e9).astype(np.int64)
    nanoseconds[:, 0] = 0
    return nanoseconds
