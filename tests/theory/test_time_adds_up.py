"""Busy and idle time add up to the whole, on every server; bytes and computation are what the trace says they are."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
from codesign.sim.engines.run import Engine
from codesign.sim.prefetch.registry import prefetcher

SEEDS = range(200)
NONE = prefetcher("none")


def test_computing_takes_what_the_trace_asks_for_whatever_the_policy(
    engine: str, scenario, computing_ns
) -> None:
    for seed in SEEDS:
        source, setup = scenario(seed)
        result = Engine(source, setup).run(engine)
        assert result.totals["compute_busy_ns"] == computing_ns(source, setup.costs).sum(), f"seed {seed}"


def test_the_compute_stream_is_busy_deciding_or_waiting_and_nothing_else(engine: str, scenario) -> None:
    for seed in SEEDS:
        source, setup = scenario(seed)
        result = Engine(source, setup).run(engine)
        totals = result.totals
        deciding = 0 if setup.decision_beside else totals["host_busy_ns"]
        assert totals["makespan_ns"] == totals["compute_busy_ns"] + deciding + totals["stall_ns"], (
            f"seed {seed}"
        )
        assert totals["stall_ns"] == result.layer_stall_ns.sum(), f"seed {seed}"
        assert result.layer_stall_ns.min() >= 0, f"seed {seed}"
        assert (result.pass_start_ns[1:] == result.pass_end_ns[:-1]).all(), f"seed {seed}"


def test_on_every_lane_one_thing_runs_at_a_time_and_their_gaps_make_up_the_rest(scenario, watched) -> None:
    """Busy time is counted from the segments and idle time from the gaps between them; both are what the totals say."""
    for seed in SEEDS:
        source, setup = scenario(seed)
        result, segments = watched(source, setup)
        totals = result.totals
        makespan = totals["makespan_ns"]
        busy, idle = Counter[str](), Counter[str]()
        for name in {segment.lane for segment in segments}:
            own = sorted((s for s in segments if s.lane == name), key=lambda s: s.start_ns)
            free_since = 0
            for segment in own:
                assert segment.start_ns >= free_since, f"seed {seed}: {name} does two things at once"
                idle[name] += segment.start_ns - free_since
                free_since = segment.end_ns
                busy[name.split()[0]] += min(segment.end_ns, makespan) - segment.start_ns
            idle[name] += max(0, makespan - free_since)
        assert busy["compute"] == totals["compute_busy_ns"], f"seed {seed}"
        assert busy["copy"] == totals["link_busy_ns"], f"seed {seed}"
        assert busy["storage"] == totals["storage_busy_ns"], f"seed {seed}"
        deciding = 0 if setup.decision_beside else totals["host_busy_ns"]
        if busy["compute"]:
            assert idle["compute"] == totals["stall_ns"] + deciding, f"seed {seed}"
        engines = {segment.lane for segment in segments if segment.lane.startswith("copy")}
        assert engines <= {f"copy {number}" for number in range(setup.costs.copy_engines)}
        assert sum(idle[name] for name in engines) == len(engines) * makespan - busy["copy"], f"seed {seed}"


def test_each_copy_engine_and_the_storage_are_never_busier_than_the_run_is_long(
    engine: str, scenario
) -> None:
    for seed in SEEDS:
        source, setup = scenario(seed)
        totals = Engine(source, setup).run(engine).totals
        assert 0 <= totals["link_busy_ns"] <= totals["makespan_ns"] * setup.costs.copy_engines, f"seed {seed}"
        assert 0 <= totals["storage_busy_ns"] <= totals["makespan_ns"], f"seed {seed}"


def test_the_compute_stream_waits_only_while_a_copy_it_needs_is_under_way(scenario, watched) -> None:
    """Every nanosecond of stall is one in which the link or the storage works (decisions in series cost none)."""
    for seed in SEEDS:
        source, setup = scenario(seed, decision_beside=False)
        result, segments = watched(source, setup)
        covered = np.zeros(result.totals["makespan_ns"] + 1, bool)
        idle = np.ones_like(covered)
        for segment in segments:
            works = idle if segment.lane in ("compute", "host") else covered
            works[segment.start_ns : segment.end_ns] = segment.lane not in ("compute", "host")
        idle[-1] = False
        assert idle.sum() == result.totals["stall_ns"], f"seed {seed}"
        assert covered[idle].all(), f"seed {seed}: the stream waits for nothing"


def test_bytes_on_demand_are_the_misses_times_the_bytes_of_their_experts(engine: str, scenario) -> None:
    """Late misses move nothing of their own: their copy was asked for ahead."""
    for seed in SEEDS:
        source, setup = scenario(seed)
        result = Engine(source, setup).run(engine)
        ledger, asked_L = result.ledger, result.layer_counts[:, 2:].sum(axis=1)
        assert ledger.demand_bytes == (asked_L * setup.size_per_layer).sum(), f"seed {seed}"
        if len(set(setup.size_per_layer.tolist())) == 1:
            assert ledger.prefetch_bytes == ledger.prefetch_issued * setup.size_per_layer[0], f"seed {seed}"
        first_loads = ledger.experts_moved - asked_L.sum() - ledger.prefetch_issued
        assert (first_loads > 0) == (ledger.first_load_bytes > 0), f"seed {seed}"
        assert ledger.bytes_moved == ledger.demand_bytes + ledger.prefetch_bytes + ledger.first_load_bytes


def test_every_copy_decided_on_was_started_withdrawn_or_still_waits_at_the_end(scenario, watched) -> None:
    """Over a link so slow that many copies never start. What still waits is for a slot each, unused."""
    withdrawn = 0
    for seed in SEEDS:
        source, setup = scenario(seed)
        slow = dataclasses.replace(setup.costs, copy_ns_C=setup.costs.copy_ns_C * 50)
        result, segments = watched(source, dataclasses.replace(setup, costs=slow))
        decided = int(result.layer_counts[:, 2:].sum()) + result.ledger.prefetch_issued
        first_hop = "storage" if setup.experts_home == "storage" else "copy"
        started = sum(segment.lane.startswith(first_hop) for segment in segments)
        waiting = decided - started - result.totals["withdrawn"]
        most = 0 if setup.prefetch.name == "none" else result.ledger.prefetch_unused_at_end
        assert 0 <= waiting <= most, f"seed {seed}"
        withdrawn += result.totals["withdrawn"]
    assert withdrawn > 20
