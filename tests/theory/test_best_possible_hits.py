"""The optimum found by trying everything, stack distances, and what more room may and may not do."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Engine, Setup, run
from codesign.sim.engines.survey import survey
from codesign.sim.prefetch.registry import prefetcher
from small_scenarios import SPECS, drawn_trace, one_layer, source_of, trace_of

LOADED_AHEAD = ("static", "static:fit=first-half")
"""A set that is resident before its first use is no demand policy; the oracles do not bound it."""


def fewest_misses(events: list[frozenset[int]], capacity: int, *, must_keep_members: bool) -> int:
    """The fewest misses of any demand policy, by following every choice of what stays after every event."""
    costs = {frozenset[int](): 0}
    for event in events:
        after: dict[frozenset[int], int] = {}
        for resident, cost in costs.items():
            at_hand = sorted(resident | event)
            for many in range(min(capacity, len(at_hand)) + 1):
                for kept in map(frozenset, itertools.combinations(at_hand, many)):
                    if event <= kept or not must_keep_members:
                        after[kept] = min(after.get(kept, 10**9), cost + len(event - resident))
        costs = after
    return min(costs.values())


def drawn_events(seed: int, largest: int) -> tuple[list[frozenset[int]], int, int]:
    """Some events of at most `largest` experts, how many experts there are, and a capacity they fit into."""
    rng = np.random.default_rng(seed)
    experts, capacity = int(rng.integers(3, 6)), int(rng.integers(min(largest, 2), 4))
    many = int(rng.integers(4, 10))
    sizes = rng.integers(1, min(largest, capacity) + 1, many).tolist()
    return [frozenset(rng.choice(experts, size, replace=False).tolist()) for size in sizes], experts, capacity


def misses_of(events: list[frozenset[int]], experts: int, name: str, capacity: int, contract: str) -> int:
    ids = [[[expert]] for event in events for expert in sorted(event)]
    steps = [step for step, event in enumerate(events) for _ in event]
    trace = trace_of(ids, experts, steps=steps, weights=np.ones((len(ids), 1, 1)))
    return run(source_of(trace), Setup(policy(name), np.array([capacity]), contract=contract)).ledger.misses


@pytest.mark.parametrize(
    ("name", "contract", "largest"),
    [
        ("belady-mandatory", "access", 1),
        ("belady-mandatory", "slots", 3),
        ("belady-bypass", "access", 1),
        ("belady-bypass", "slots", 1),
        ("belady-bypass", "fused", 3),
    ],
)
def test_the_oracle_misses_no_more_than_the_best_of_all_choices(
    name: str, contract: str, largest: int
) -> None:
    for seed in range(150):
        events, experts, capacity = drawn_events(seed, largest)
        best = fewest_misses(events, capacity, must_keep_members=name == "belady-mandatory")
        found = misses_of(events, experts, name, capacity, contract)
        assert found == best, f"seed {seed}: {[sorted(event) for event in events]} with room for {capacity}"


@pytest.mark.parametrize("contract", ["slots", "fused"])
def test_no_demand_policy_beats_the_best_of_all_choices(contract: str) -> None:
    for seed in range(60):
        events, experts, capacity = drawn_events(seed, 3)
        best = fewest_misses(events, capacity, must_keep_members=False)
        for name in SPECS:
            if name not in LOADED_AHEAD and name not in ("never", "unbounded"):
                assert misses_of(events, experts, name, capacity, contract) >= best, (seed, name)


def test_no_demand_policy_beats_its_oracle_where_every_pass_fits(engine: str, scenario) -> None:
    """With times, and with several layers in one pool or a quota each.

    Fits means that no pass asks a pool for more than it holds: the oracles decide about what stays between events, not
    about the waves inside one.
    """
    compared = 0
    for seed in range(160):
        source, drawn = scenario(seed, prefetch=prefetcher("none"), contract="slots")
        if drawn.policy.name in ("never", "unbounded", "static", "belady-mandatory", "belady-bypass"):
            continue
        widest = int(survey(source).union_PL.max())
        fitting = {
            "capacity_per_pool": np.full(len(drawn.capacity_per_pool), widest + seed % 3),
            "size_per_layer": np.ones(source.trace.num_layers, np.int64),
        }
        misses = [
            Engine(source, dataclasses.replace(drawn, policy=chosen, **fitting)).run(engine).ledger.misses
            for chosen in (policy("belady-bypass"), policy("belady-mandatory"), drawn.policy)
        ]
        assert misses == sorted(misses), (seed, drawn.policy.spec, misses)
        compared += 1
    assert compared > 80


def hits_by_access(trace, name: str, capacity: int, machine, engine: str) -> np.ndarray:  # type: ignore[no-untyped-def]
    """Whether each access of a one-expert-an-event trace is a hit."""
    source = source_of(trace)
    setup = Setup(
        policy(name), np.array([capacity]), contract="access", costs=machine(source), record_events=True
    )
    return Engine(source, setup).run(engine).events["hits"]


def test_lru_hits_exactly_where_the_stack_distance_fits(machine) -> None:
    """Mattson 1970: an access hits in C slots if fewer than C other experts were used since its last use."""
    for seed in range(30):
        ids = (np.random.default_rng(seed).zipf(1.4, 60) % 12).tolist()
        distance = []
        for at, expert in enumerate(ids):
            earlier = [i for i in range(at) if ids[i] == expert]
            distance.append(len(set(ids[earlier[-1] + 1 : at])) if earlier else 10**9)
        for capacity in (1, 2, 3, 5, 8, 12):
            hits = hits_by_access(one_layer(ids, 12), "lru", capacity, machine, "numba")
            assert hits.tolist() == [int(d < capacity) for d in distance], (seed, capacity)


@pytest.mark.parametrize("name", ["lru", "belady-mandatory", "belady-bypass"])
def test_more_room_in_one_pool_never_costs_a_hit(name: str, engine: str, machine) -> None:
    """Over all layers of a trace, with several experts an event, accesses one after another; to the room for all.

    For LRU access by access (what it holds in C slots is a part of what it holds in C + 1), for the oracles in sum.
    """
    for seed in range(25):
        trace = drawn_trace(np.random.default_rng(seed))
        before = None
        for capacity in range(1, trace.num_layers * trace.num_experts + 1):
            source = source_of(trace)
            setup = Setup(
                policy(name),
                np.array([capacity]),
                contract="access",
                costs=machine(source),
                record_events=True,
            )
            hits = Engine(source, setup).run(engine).events["hits"]
            if before is not None:
                assert hits.sum() >= before.sum(), (seed, capacity)
                assert name != "lru" or (hits >= before).all(), (seed, capacity)
            before = hits
