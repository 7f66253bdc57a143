"""How a cache's capacity is divided: one pool over all layers, or a quota for each. Case B07: what cannot work is refused.

Quotas are equal (`layer`), or fitted to the part of a trace that trains (`fitted`, `sim/fitted_quotas.py`).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError, unknown_name

SCOPES = ("global", "layer", "fitted")


def split_capacity(experts: int, num_layers: int, scope: str) -> NDArray[np.int64]:
    """Experts of each pool: one entry, or ⌊C ÷ L⌋ for each layer with the remainder going to the lowest layers."""
    if scope not in ("global", "layer"):
        raise unknown_name("scope", scope, ("global", "layer"))
    if scope == "global":
        return np.array([experts], np.int64)
    quota, remainder = divmod(experts, num_layers)
    return np.where(np.arange(num_layers) < remainder, quota + 1, quota).astype(np.int64)


def check_holds_one_token(experts: int, num_layers: int, top_k: int, scope: str, label: str) -> None:
    """Raise `UsageError` when one token's top-k does not fit into every pool; the message names both numbers."""
    smallest = experts if scope == "global" else experts // num_layers
    if smallest >= top_k:
        return
    where = f"a quota of {smallest} experts in some layers" if scope != "global" else f"{smallest} experts"
    needed = top_k if scope == "global" else top_k * num_layers
    raise UsageError(
        f"capacity {label} gives {where}, fewer than the {top_k} that one token needs (top-k): no policy can run, "
        f"and a comparison would be void. Give at least {needed} experts, or see the bound 'never' for no cache at all"
    )
