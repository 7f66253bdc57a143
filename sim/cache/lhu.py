"""LHU, least high-precision used (HOBBIT, arXiv 2411.01433): fewest uses that mattered, since it was brought in.

A use matters, and in HOBBIT is served in high precision, if for one of its tokens the experts that the gate weighs heavier
carry less than 0.6 of the token's weight together. Ties: smaller last use, then layer, then expert id.
"""

from __future__ import annotations

from typing import Any

from ..blocks import WEIGHT_UNIT
from ..compiled import inlined
from .plan import ABOVE, EXPERT, MEMBERS
from .state import EVENT, LAST_USE, PRIORITY

_LIMIT = 6 * WEIGHT_UNIT // 10
_MATTERED = 0  # row of links: the last event in which the use of x mattered


@inlined
def mattered(plan: Any, i: int) -> bool:
    """Whether this event's use of member i did."""
    return plan.member[ABOVE, i] < _LIMIT


@inlined
def begin_event(s: Any, plan: Any) -> None:
    for i in range(plan.size[MEMBERS]):
        if mattered(plan, i):
            s.links[_MATTERED, plan.member[EXPERT, i]] = s.clock[EVENT]


@inlined
def hit(s: Any, x: int) -> None:
    s.when[PRIORITY, x] += s.links[_MATTERED, x] == s.clock[EVENT]
    s.when[LAST_USE, x] = s.clock[EVENT]


@inlined
def insert(s: Any, x: int) -> None:
    s.when[PRIORITY, x] = s.links[_MATTERED, x] == s.clock[EVENT]
    s.when[LAST_USE, x] = s.clock[EVENT]
