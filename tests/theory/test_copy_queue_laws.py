"""The link as a queue: completion times in closed form, Little's law, the utilisation law."""

from __future__ import annotations

import numpy as np
import pytest
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Engine, Setup
from codesign.sim.prefetch.registry import prefetcher
from small_scenarios import source_of, trace_of

NONE = prefetcher("none")
SHAPES = [(n, c, e) for n in (1, 2, 3, 7, 8) for c in (1, 5, 20) for e in (0, 1, 5, 6, 40)]
"""Copies, time of a copy, time of an expert's computation (or of a read)."""
SEEDS = range(120)


def burst(copies: int):  # type: ignore[no-untyped-def]
    """One pass in which `copies` different experts are asked for at once."""
    experts = max(copies, 2)  # arrays of one expert have another layout, which numba compiles anew
    return source_of(trace_of(np.arange(copies)[:, None, None], experts, steps=[0] * copies))


def duration(result) -> int:  # type: ignore[no-untyped-def]
    assert result.events is not None
    return int(result.events["end"][0] - result.events["known"][0])


def test_equal_copies_over_one_link_and_one_stream_take_n_of_the_slower_and_one_of_the_faster(
    engine: str, machine
) -> None:
    """D/D/1 and a second D/D/1 behind it: the slower of the two is never idle once it has begun."""
    for copies, copy, expert in SHAPES:
        source = burst(copies)
        costs = machine(source, expert=expert, copy=copy)
        setup = Setup(policy("lru"), np.array([copies]), costs=costs, record_events=True)
        slower, faster = max(copy, expert), min(copy, expert)
        assert duration(Engine(source, setup).run(engine)) == copies * slower + faster


@pytest.mark.parametrize("copy_engines", [1, 2, 3, 16])
def test_a_burst_over_several_copy_engines_ends_when_the_busy_period_of_its_last_arrivals_does(
    copy_engines: int, engine: str, machine
) -> None:
    """Copy j of 1 … n lands at ⌈j/E⌉·c; the last departure is the worst sum of an arrival and the work from it on."""
    for copies, copy, expert in SHAPES:
        source, shared = burst(copies), 3
        costs = machine(source, resident=shared, expert=expert, copy=copy, engines=copy_engines)
        setup = Setup(policy("lru"), np.array([copies]), costs=costs, record_events=True)
        arrivals = [-(-j // copy_engines) * copy for j in range(1, copies + 1)]
        from_arrival = [arrival + (copies - j) * expert for j, arrival in enumerate(arrivals)]
        assert duration(Engine(source, setup).run(engine)) == max(shared + copies * expert, *from_arrival)


@pytest.mark.parametrize("copy_engines", [1, 3])
def test_copies_from_storage_pass_two_stations_one_after_the_other(
    copy_engines: int, engine: str, machine
) -> None:
    """Read j ends at j·s; its copy starts then, or when the copy E before it ends."""
    for copies, copy, read in SHAPES:
        source, read = burst(copies), read + 1
        costs = machine(source, copy=copy, storage=read, engines=copy_engines)
        setup = Setup(
            policy("lru"), np.array([copies]), costs=costs, experts_home="storage", record_events=True
        )
        landed = [0] * copy_engines
        for j in range(1, copies + 1):
            landed.append(max(j * read, landed[-copy_engines]) + copy)
        assert duration(Engine(source, setup).run(engine)) == landed[-1]
        if copy_engines == 1:
            assert landed[-1] == copies * max(read, copy) + min(read, copy)


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_more_experts_than_slots_go_round_as_a_closed_loop_of_slots(slots: int, engine: str, machine) -> None:
    """A copy waits for the link and for the expert that had its slot, the one `slots` before it, to be computed."""
    for copies, copy, expert in SHAPES:
        source = burst(copies)
        costs = machine(source, expert=expert, copy=copy)
        setup = Setup(policy("lru"), np.array([slots]), costs=costs, record_events=True)
        landed, computed = [0], [0] * slots
        for _ in range(copies):
            landed.append(max(landed[-1], computed[-slots]) + copy)
            computed.append(max(landed[-1], computed[-1]) + expert)
        result = Engine(source, setup).run(engine)
        assert duration(result) == computed[-1]
        assert result.ledger.waves == max(0, copies - slots)
        if slots == 1:
            assert computed[-1] == copies * (copy + expert)


def test_copies_waiting_for_the_link_obey_littles_law(scenario, watched) -> None:
    """Mean number waiting × time = number of copies × mean wait (Little 1961).

    Left: the number waiting, summed nanosecond by nanosecond along the timeline. Right: what theory says that n equal
    copies, asked for at once, wait before E servers, copy j waits ⌊j/E⌋·c. The left side knows nothing of it.
    """
    waited = 0
    for seed in SEEDS:
        source, setup = scenario(
            seed, policy=policy("lru"), prefetch=NONE, decision_ns=0, experts_home="host", contract="fused"
        )
        result, segments = watched(source, setup)
        known, costs = Engine(source, setup).run("numba").events["known"], setup.costs
        layers, makespan = source.trace.num_layers, result.totals["makespan_ns"]
        starts = [segment for segment in segments if segment.lane.startswith("copy")]
        change = np.zeros(makespan + 1, np.int64)
        wait, moved = 0, 0
        for event, since in enumerate(known.tolist()):
            pass_number, layer = divmod(event, layers)
            copies = [s for s in starts if (s.pass_number, s.layer) == (pass_number, layer)]
            change[since] += len(copies)
            for j, segment in enumerate(copies):
                change[segment.start_ns] -= 1
                wait += j // costs.copy_engines * int(costs.copy_ns_C[costs.layer_class_L[layer]])
            moved += len(copies)
        assert moved == result.ledger.misses
        waiting = np.cumsum(change)
        assert waiting.min() >= 0
        assert waiting.sum() == wait, f"seed {seed}"
        waited += wait
    assert waited > 0


def test_without_prefetch_each_server_is_busy_for_what_each_copy_takes_times_their_number(
    engine: str, scenario
) -> None:
    """The utilisation law, U = X·S. No copy is left over at the end, because its expert would not be computed."""
    for seed in SEEDS:
        source, setup = scenario(seed, prefetch=NONE)
        result = Engine(source, setup).run(engine)
        moved_L, of_layer = result.layer_counts[:, 1:].sum(axis=1), setup.costs.layer_class_L
        assert result.totals["link_busy_ns"] == (moved_L * setup.costs.copy_ns_C[of_layer]).sum()
        reads = (moved_L * setup.costs.storage_ns_C[of_layer]).sum() if setup.experts_home == "storage" else 0
        assert result.totals["storage_busy_ns"] == reads
        assert result.totals["withdrawn"] == 0


def test_every_copy_from_storage_is_read_once_and_only_then_copied_once(scenario, watched) -> None:
    for seed in SEEDS:
        source, setup = scenario(seed, experts_home="storage")
        _, segments = watched(source, setup)
        read: dict[int, list[int]] = {}
        for segment in sorted(segments, key=lambda one: one.start_ns):
            if segment.lane == "storage":
                read.setdefault(segment.expert, []).append(segment.end_ns)
            elif segment.lane.startswith("copy"):
                assert read[segment.expert].pop(0) <= segment.start_ns, segment


def test_demand_never_waits_while_a_prefetch_starts_and_equals_go_first_come_first_served(
    scenario, watched
) -> None:
    """In an event all demand is asked for at once: from then on no copy ahead starts before the last of it has."""
    for seed in SEEDS:
        source, setup = scenario(seed, contract="fused", experts_home="host", decision_beside=False)
        result, segments = watched(source, setup)
        layers = source.trace.num_layers
        copies = [segment for segment in segments if segment.lane.startswith("copy")]
        for event, known in enumerate(result.events["known"].tolist()):
            pass_number, layer = divmod(event, layers)
            demand = [s for s in copies if s.start_ns >= known and s.kind == "demand"
                      and (s.pass_number, s.layer) == (pass_number, layer)]  # fmt: skip
            if demand:
                last = max(s.start_ns for s in demand)
                assert not [s for s in copies if s.kind == "prefetch" and known <= s.start_ns < last]
