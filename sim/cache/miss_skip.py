"""Leave out a missed expert that weighs little: for every token that chose it, less than `below` of the token's weight.

Nothing replaces it; the others' weights stay as they are. Score drop, as in HOBBIT (arXiv 2411.01433) and AdapMoE.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .plan import LARGEST


@inlined
def takes(plan: Any, i: int, limit: int) -> bool:
    return plan.member[LARGEST, i] < limit
