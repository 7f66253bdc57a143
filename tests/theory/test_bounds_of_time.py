"""What no replay can be quicker than, what it cannot be slower than, and what a perfect machine comes to."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Engine, Setup
from codesign.sim.engines.survey import survey
from codesign.sim.prefetch.registry import prefetcher
from codesign.sim.request_times import request_times
from small_scenarios import drawn_trace, source_of, trace_of

SEEDS = range(200)
NONE, PERFECT = prefetcher("none"), prefetcher("perfect:ahead=1")
POLICIES = ("lru", "fifo", "lfu", "least-stale", "belady-mandatory", "unbounded")


def everything(source) -> np.ndarray:  # type: ignore[no-untyped-def]
    return np.array([source.trace.num_layers * source.trace.num_experts])


def with_policy(source, setup: Setup, name: str) -> Setup:  # type: ignore[no-untyped-def]
    """The same scenario, one pool of equal experts, with nothing resident (`never`) or room for all."""
    room = everything(source) * (name != "never")
    return dataclasses.replace(
        setup,
        policy=policy(name),
        capacity_per_pool=room,
        size_per_layer=np.ones(source.trace.num_layers, np.int64),
    )


def test_no_event_takes_longer_with_everything_kept_than_with_nothing_kept(engine: str, scenario) -> None:
    """And so TPOT of `unbounded` is never above that of `never`.

    Without prefetch the link is idle when an event begins. What is missing under `unbounded` is a part of what is
    missing under `never`, so each of its copies stands no later in the queue; and a stream that works on
    whatever has landed ends no later when everything lands no later.
    """
    differed = 0
    for seed in SEEDS:
        source, setup = scenario(seed, prefetch=NONE, contract="slots")
        kept, never = (
            Engine(source, with_policy(source, setup, name)).run(engine) for name in ("unbounded", "never")
        )
        lengths = [run.events["end"] - np.append(0, run.events["end"][:-1]) for run in (kept, never)]
        assert (lengths[0] <= lengths[1]).all(), f"seed {seed}"
        differed += (lengths[0] < lengths[1]).any()
        fast, slow = (
            request_times(source.passes, run.pass_start_ns, run.pass_end_ns).tpot_s for run in (kept, never)
        )
        assert (np.nan_to_num(fast) <= np.nan_to_num(slow)).all(), f"seed {seed}"
    assert differed > len(SEEDS) / 2


def test_no_first_token_and_no_next_one_comes_before_its_computation_and_its_copies_can_end(
    engine: str, scenario, computing_ns
) -> None:
    """TTFT and TPOT are at least what their passes compute, and at least what these move ÷ copy engines."""
    known_ttft = 0
    for seed in SEEDS:
        source, setup = scenario(seed, prefetch=NONE)
        costs, passes = setup.costs, source.passes
        result = Engine(source, setup).run(engine)
        missed_PL = survey(source).union_PL - result.events["hits"].reshape(passes.count, -1)
        if setup.contract == "access":
            continue  # its accesses are no union; the same law for it is that of the totals
        link_P = (missed_PL * costs.copy_ns_C[costs.layer_class_L]).sum(axis=1) / costs.copy_engines
        least = np.append(0, np.cumsum(np.maximum(link_P, computing_ns(source, costs))))
        times = request_times(passes, result.pass_start_ns, result.pass_end_ns)
        for sequence, first in enumerate(passes.first_pass.tolist()):
            ends = passes.prompt_pass[sequence] if passes.prompt_pass[sequence] >= 0 else first
            if not np.isnan(times.ttft_s[sequence]):
                known_ttft += 1
                assert times.ttft_s[sequence] * 1e9 >= least[ends + 1] - least[first] - 1e-3, f"seed {seed}"
            if not np.isnan(times.tpot_s[sequence]):
                tokens = passes.decode_rows[sequence] + (passes.prompt_pass[sequence] >= 0) - 1
                apart = least[passes.last_pass[sequence] + 1] - least[ends + 1]
                assert times.tpot_s[sequence] * tokens * 1e9 >= apart - 1e-3, f"seed {seed}"
    assert known_ttft > 100


def test_waiting_is_at_most_what_the_servers_need_for_the_misses(engine: str, scenario) -> None:
    """So as copies get quick, every policy comes to what it computes, and all of them to the same."""
    for seed in SEEDS:
        source, setup = scenario(seed, prefetch=NONE, decision_beside=False)
        result = Engine(source, setup).run(engine)
        costs, of_layer = setup.costs, setup.costs.layer_class_L
        a_copy = costs.copy_ns_C + (costs.storage_ns_C if setup.experts_home == "storage" else 0)
        most = (result.layer_counts[:, 1:].sum(axis=1) * a_copy[of_layer]).sum()
        assert result.totals["stall_ns"] <= most, f"seed {seed}"


def test_over_a_link_that_takes_next_to_nothing_every_policy_takes_the_time_of_unbounded(
    engine: str, machine, computing_ns
) -> None:
    """1 ns a copy and an engine for each is as near to no time as the clock goes: one nanosecond an event with misses."""
    for seed in range(60):
        source = source_of(drawn_trace(np.random.default_rng(seed)))
        costs = machine(
            source, before=500, resident=0, expert=700, after=90, engines=source.trace.num_experts
        )
        events = source.passes.count * source.trace.num_layers
        for name in POLICIES:
            setup = Setup(policy(name), everything(source), costs=costs)
            result = Engine(source, setup).run(engine)
            alone = computing_ns(source, costs).sum()
            assert alone <= result.totals["makespan_ns"] <= alone + events, (seed, name)


@pytest.mark.parametrize("name", ["lru", "belady-mandatory"])
def test_perfect_prefetch_over_such_a_link_leaves_only_computing(
    name: str, engine: str, machine, computing_ns
) -> None:
    """Only the very first event waits, for one nanosecond: nobody could ask for its experts before.

    The oracle needs room for the experts of two layers, this one and the next. LRU is given room for all: in less
    it may throw out, for an expert that comes next, another one that comes next.
    """
    for seed in range(60):
        rng = np.random.default_rng(seed)
        layers, experts, top_k = int(rng.integers(1, 5)), int(rng.integers(4, 13)), int(rng.integers(1, 4))
        ids = np.argsort(rng.random((12, layers, experts)), axis=2)[:, :, :top_k]
        source = source_of(trace_of(ids, experts))
        costs = machine(source, before=500, expert=700, after=90, engines=experts)
        room = everything(source) if name == "lru" else np.minimum(everything(source), 2 * top_k)
        result = Engine(source, Setup(policy(name), room, prefetch=PERFECT, costs=costs)).run(engine)
        assert result.ledger.misses == top_k, f"seed {seed}"
        assert result.totals["stall_ns"] == 1, f"seed {seed}"
        assert result.totals["makespan_ns"] == computing_ns(source, costs).sum() + 1, f"seed {seed}"
