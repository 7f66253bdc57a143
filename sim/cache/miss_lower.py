"""Fetch a lower-precision copy of a missed expert (HOBBIT, arXiv 2411.01433), through the staging buffer; it is not kept.

Only where the expert weighs little: for every token that chose it, the experts the gate weighs heavier together
carry at least `above` of that token's weight (`above=0`: always). The copy is `share` of the full one, in bytes and,
rounded up, in time; it computes in the same time.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .plan import ABOVE


@inlined
def takes(plan: Any, i: int, limit: int) -> bool:
    return plan.member[ABOVE, i] >= limit
