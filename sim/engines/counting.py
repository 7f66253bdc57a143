"""Counting without a clock: the cache core over a block of passes, in one compiled loop."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..cache.core import step
from ..cache.history import History, learn
from ..cache.ledger import HITS, LOGICAL
from ..cache.plan import EXPERT, MEMBERS, collect, weigh
from ..cache.sequences import NOBODY, Sequences, follow
from ..compiled import compiled, inlined
from ..prefetch import gate
from ..prefetch.expert_map import Maps, compare
from ..prefetch.parameters import AHEAD
from ..prefetch.request import FIRST_NEXT_PASS, MANY
from ..prefetch.switch import GATE, MAP, NONE, propose


class Rules(NamedTuple):
    """What stays the same through a run: codes and parameters that the compiled loops read."""

    policy: int
    contract: int
    sort: bool  # members ascending (slots, fused) or as written (access)
    num_experts: int
    prefetch: int
    whole: NDArray[np.int64]
    real: NDArray[np.float64]
    staging: int  # places of the staging buffer
    budget: int  # bytes a prefetcher may ask for in one event, −1 no limit
    miss: int
    miss_limit: int
    miss_table: NDArray[np.int64]  # [L, …] what the miss policy was told of costs, or bytes
    weighs: bool  # somebody asks for gate weights
    learns: bool  # somebody asks for the past of all tokens
    history: History
    follows: int  # who asks for the past of each sequence: NOBODY, PREFETCHER or POLICY
    sequences: Sequences
    maps: Maps


@inlined
def decide_event(
    rules: Any,
    s: Any,
    plan: Any,
    wanted: Any,
    block: Any,
    index: int,
    layer: int,
    next_uses: Any,
    used: int,
    counts: Any,
    layer_counts: Any,
) -> int:
    """Collect one event, ask the prefetcher and step the cache core; return how many of `next_uses` are now used."""
    layers = block.experts.shape[1]
    pass_number = block.first_pass + index
    counts[LOGICAL] += collect(
        block.experts, block.start[index], block.start[index + 1], layer, rules.sort, plan
    )
    if rules.follows != NOBODY:
        follow(rules.sequences, s, rules.follows, block, block.start[index], block.start[index + 1], layer)
    if rules.prefetch == MAP:
        compare(rules.maps, block, block.start[index], block.start[index + 1], layer)
    if rules.prefetch == GATE:
        gate.propose(block, block.start[index], block.start[index + 1], layer, rules.num_experts, rules.whole, rules.real, wanted)
    elif rules.prefetch != NONE:
        propose(
            rules.prefetch, rules.whole, rules.real, rules.history, rules.sequences, rules.maps, block, index, layer,
            rules.num_experts, wanted,
        )  # fmt: skip
    if rules.weighs:
        weigh(block.experts, block.weights, block.start[index], block.start[index + 1], layer, plan)
    members = plan.size[MEMBERS]
    upcoming = next_uses[used : used + members] if next_uses.shape[0] > 0 else next_uses
    step(
        rules.policy, rules.contract, s, plan, pass_number * layers + layer, pass_number, layer, upcoming, rules.staging,
        wanted.expert, wanted.size[FIRST_NEXT_PASS], wanted.size[MANY], rules.budget, rules.miss, rules.miss_limit,
        rules.miss_table, rules.history.together, counts, layer_counts,
    )  # fmt: skip
    if rules.learns:
        learn(
            rules.history, block.experts, block.start[index], block.start[index + 1], layer, rules.whole[AHEAD]
        )  # fmt: skip
    return used + members


@compiled
def decide_one(
    rules: Any,
    s: Any,
    plan: Any,
    wanted: Any,
    block: Any,
    index: int,
    layer: int,
    next_uses: Any,
    used: int,
    counts: Any,
    layer_counts: Any,
) -> int:
    """`decide_event` for callers in Python."""
    return decide_event(rules, s, plan, wanted, block, index, layer, next_uses, used, counts, layer_counts)


@compiled
def count_block(
    rules: Any, s: Any, plan: Any, wanted: Any, block: Any, next_uses: Any, counts: Any, layer_counts: Any, pass_hits: Any
) -> int:
    """Run the block and note its passes' hits; return how many of `next_uses` were used."""
    used = 0
    for index in range(block.begin, block.passes):
        hits_before = counts[HITS]
        for layer in range(block.experts.shape[1]):
            used = decide_event(
                rules, s, plan, wanted, block, index, layer, next_uses, used, counts, layer_counts
            )
        pass_hits[block.first_pass + index] = counts[HITS] - hits_before
    return used


@compiled
def follow_uses(block: Any, by_access: bool, plan: Any, latest: Any, first: Any, uses: Any, done: int) -> int:
    """One block of the pass that finds next uses; return the number of accesses so far.

    `uses[j]` becomes the time of the next use after access j, once that is seen; `latest[x]` is x's last access
    so far (−1 none), `first[x]` the time of its first. Time is the event, or with `by_access` the access.
    """
    layers = block.experts.shape[1]
    for index in range(block.passes):
        for layer in range(layers):
            collect(block.experts, block.start[index], block.start[index + 1], layer, not by_access, plan)
            event = (block.first_pass + index) * layers + layer
            for i in range(plan.size[MEMBERS]):
                x = plan.member[EXPERT, i]
                time = done if by_access else event
                if latest[x] >= 0:
                    uses[latest[x]] = time
                else:
                    first[x] = time
                latest[x] = done
                done += 1
    return done


@compiled
def count_uses(block: Any, plan: Any, uses: Any, firsts: Any, distinct: Any) -> None:
    """Per expert, the events that use it; per pass, how many experts were used for the first time, by layer.

    Also notes the union sizes: `distinct[pass, layer]` is |E|.
    """
    layers = block.experts.shape[1]
    for index in range(block.begin, block.passes):
        for layer in range(layers):
            collect(block.experts, block.start[index], block.start[index + 1], layer, True, plan)
            distinct[block.first_pass + index, layer] = plan.size[MEMBERS]
            for i in range(plan.size[MEMBERS]):
                x = plan.member[EXPERT, i]
                firsts[block.first_pass + index, layer] += uses[x] == 0
                uses[x] += 1


@compiled
def note_accesses(block: Any, plan: Any, ids: Any, done: int) -> int:
    """Write the block's accesses as they come under `access`, as expert numbers, from `done` on; return how many so far."""
    for index in range(block.passes):
        for layer in range(block.experts.shape[1]):
            collect(block.experts, block.start[index], block.start[index + 1], layer, False, plan)
            for i in range(plan.size[MEMBERS]):
                ids[done] = plan.member[EXPERT, i]
                done += 1
    return done
