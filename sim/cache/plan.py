"""What one event decided, and how its members are collected."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bits import lowest_bit
from ..blocks import WEIGHT_UNIT
from ..compiled import called, inlined

# Rows of Plan.member
EXPERT, TOKENS, KIND, PLACE, WAIT, WEIGHT, LARGEST, ABOVE = range(8)
MEMBER_ROWS = 8
# Rows of Plan.fetch
FETCHED, FETCH_SLOT = range(2)
# Columns of Plan.size
MEMBERS, FETCHES, EVICTED, MISSED = range(4)


class Plan(NamedTuple):
    """Arrays that are filled anew with each event. N experts a layer, F fetches at most."""

    member: NDArray[np.int32]
    """[8, N] the event's experts, ascending (under `access` as written); tokens of the pass that chose it; HIT, a
    kind of miss or what became of it; slot (from the number of slots on: a place in the staging buffer); member whose
    computation must end before this one's copy may start (−1 none); and where gate weights are asked for, in units of
    2^-14 of a token's weight: the sum over its tokens, the largest of them, and the least that heavier experts of one of
    its tokens carry together."""
    fetch: NDArray[np.int32]
    """[2, F] experts prefetched, and their slots."""
    evicted: NDArray[np.int32]
    """Experts evicted, in order."""
    missed: NDArray[np.int32]
    """[N] members that were not resident when the event was classified, in order (not under `access`)."""
    size: NDArray[np.int64]
    """[4] members, fetches, evicted, missed."""
    seen: NDArray[np.int32]
    """[N] tokens that chose each expert; zeros between events."""
    present: NDArray[np.uint64]
    """[⌈N ÷ 64⌉] one bit an expert; zeros between events."""


def new_plan(num_experts: int, max_fetch: int, slots: int) -> Plan:
    return Plan(
        member=np.zeros((MEMBER_ROWS, num_experts), np.int32, "F"),
        fetch=np.zeros((2, max_fetch), np.int32),
        evicted=np.zeros(num_experts + max_fetch + slots, np.int32),
        missed=np.zeros(num_experts, np.int32),
        size=np.zeros(4, np.int64),
        seen=np.zeros(num_experts, np.int32),
        present=np.zeros(-(-num_experts // 64), np.uint64),
    )


@inlined
def _collect_row(experts: Any, row: int, layer: int, first: int, plan: Plan) -> int:
    """`collect` of one token, whose experts differ: nobody need be counted."""
    found, logical = 0, 0
    for column in range(experts.shape[2]):
        expert = experts[row, layer, column]
        if expert >= 0:
            logical += 1
            plan.present[expert >> 6] |= np.uint64(1) << np.uint64(expert & 63)
    for index in range(plan.present.shape[0]):
        word = plan.present[index]
        plan.present[index] = 0
        while word:
            plan.member[EXPERT, found] = first + 64 * index + lowest_bit(word)
            plan.member[TOKENS, found] = 1
            word &= word - np.uint64(1)
            found += 1
    plan.size[MEMBERS] = found
    return logical


@inlined
def collect(experts: Any, low: int, high: int, layer: int, sort: bool, plan: Plan) -> int:
    """Fill EXPERT and TOKENS of `plan.member` with the union of a layer's rows low … high−1; return the logical count."""
    first = layer * plan.seen.shape[0]
    if sort and high - low == 1:
        logical = _collect_row(experts, low, layer, first, plan)
        if logical == plan.size[MEMBERS]:
            return logical
    found, logical = 0, 0
    for row in range(low, high):
        for column in range(experts.shape[2]):
            expert = experts[row, layer, column]
            if expert < 0:
                continue
            logical += 1
            if sort:
                plan.present[expert >> 6] |= np.uint64(1) << np.uint64(expert & 63)
            elif plan.seen[expert] == 0:
                plan.member[EXPERT, found] = expert
                found += 1
            plan.seen[expert] += 1
    if sort:
        for index in range(plan.present.shape[0]):
            word = plan.present[index]
            plan.present[index] = 0
            while word:
                plan.member[EXPERT, found] = 64 * index + lowest_bit(word)
                word &= word - np.uint64(1)
                found += 1
    for i in range(found):
        expert = plan.member[EXPERT, i]
        plan.member[TOKENS, i] = plan.seen[expert]
        plan.seen[expert] = 0
        plan.member[EXPERT, i] = first + expert
    plan.size[MEMBERS] = found
    return logical


@called
def weigh(experts: Any, weights: Any, low: int, high: int, layer: int, plan: Any) -> None:
    """Fill WEIGHT, LARGEST and ABOVE of the members that `collect` found in a layer's rows low … high−1."""
    first, columns = layer * plan.seen.shape[0], experts.shape[2]
    for i in range(plan.size[MEMBERS]):
        plan.seen[plan.member[EXPERT, i] - first] = i
        plan.member[WEIGHT, i] = 0
        plan.member[LARGEST, i] = 0
        plan.member[ABOVE, i] = WEIGHT_UNIT
    for row in range(low, high):
        for column in range(columns):
            if experts[row, layer, column] < 0:
                continue
            i, share, heavier = plan.seen[experts[row, layer, column]], weights[row, layer, column], 0
            for other in range(columns):
                theirs = weights[row, layer, other]
                if theirs > share or (theirs == share and other < column):
                    heavier += theirs
            plan.member[WEIGHT, i] += share
            plan.member[LARGEST, i] = max(plan.member[LARGEST, i], share)
            plan.member[ABOVE, i] = min(plan.member[ABOVE, i], heavier)
    for i in range(plan.size[MEMBERS]):
        plan.seen[plan.member[EXPERT, i] - first] = 0
