"""Score-aware: the expert to which the gate has lately given the least weight goes.

Every event of a layer moves the score of each of its experts, resident or not, an eighth of the way to the gate weight
that the event gave it (0 where it was not chosen): the "score" eviction that SpecMD (arXiv 2602.03921) compares, as an
exponential average. Ties: smaller last use, then layer, then expert id.
"""

from __future__ import annotations

from typing import Any

from ..compiled import inlined
from .plan import EXPERT, MEMBERS, WEIGHT
from .state import EVENT, LAST_USE, LAYER, PRIORITY

_SCALE = 10  # bits: weights are small numbers, and the average must not stick at the last eighth
_EIGHTH = 3


@inlined
def begin_event(s: Any, plan: Any, num_experts: int) -> None:
    first = s.clock[LAYER] * num_experts
    for x in range(first, first + num_experts):
        s.when[PRIORITY, x] -= s.when[PRIORITY, x] >> _EIGHTH
    for i in range(plan.size[MEMBERS]):
        s.when[PRIORITY, plan.member[EXPERT, i]] += (plan.member[WEIGHT, i] << _SCALE) >> _EIGHTH


@inlined
def use(s: Any, x: int) -> None:
    """On a hit and on an insertion."""
    s.when[LAST_USE, x] = s.clock[EVENT]
