"""One suite over the registry: what every policy keeps, and a slow and obvious twin for each."""

from __future__ import annotations

import tomllib

import numpy as np
import pytest
from codesign.sim.cache.access_loop import count_misses
from codesign.sim.cache.misses import MISS_POLICIES, miss_policy
from codesign.sim.cache.registry import POLICIES, policy
from codesign.sim.cache.state import CAPACITY, SLOT, USED
from codesign.sim.decisions import DECISIONS_FILE, decision_cost
from codesign.sim.engines.run import Engine, Setup, run
from codesign.sim.prefetch.registry import PREFETCHERS, prefetcher
from slow_policies import SLOW, slow_events
from small_scenarios import SPECS, drawn_setup, drawn_trace, one_layer, source_of, trace_of

EVERY = pytest.mark.parametrize("name", SPECS)


def drawn_counting(seed: int, name: str, contract: str) -> tuple[object, Setup, np.random.Generator]:
    rng = np.random.default_rng(seed)
    trace = drawn_trace(rng)
    chosen = policy(name)
    per_layer = bool(rng.random() < 0.5)
    pools = trace.num_layers if per_layer else 1
    whole = trace.num_experts * (1 if per_layer else trace.num_layers)
    sizes = {"never": 0, "unbounded": whole}
    capacity = np.full(pools, sizes.get(name, int(rng.integers(trace.top_k, whole + 1))), np.int64)
    return (
        source_of(trace, int(rng.integers(1, 4))),
        Setup(chosen, capacity, contract=contract, seed=seed),
        rng,
    )


@EVERY
@pytest.mark.parametrize("contract", ["slots", "fused", "access"])
def test_a_policy_hits_and_misses_as_its_slow_twin_does(name: str, contract: str) -> None:
    if name.partition(":")[0] == "random":
        pytest.skip("chance has no twin; its law is tested below")
    for seed in range(40):
        source, setup, _ = drawn_counting(seed, name, contract)
        result = run(source, setup)  # type: ignore[arg-type]
        expected = slow_events(source, setup)  # type: ignore[arg-type]
        assert (result.ledger.hits, result.ledger.evictions, result.ledger.bypasses) == expected, (
            f"seed {seed}"
        )


def test_every_policy_but_chance_has_a_slow_twin() -> None:
    assert {*SLOW, "random"} == set(POLICIES)


@EVERY
def test_no_pool_ever_holds_more_than_its_capacity(name: str) -> None:
    for seed in range(10):
        source, setup, _ = drawn_counting(seed, name, "slots")
        engine = Engine(source, setup)  # type: ignore[arg-type]
        engine.run()
        assert (engine.state.pool[USED] <= engine.state.pool[CAPACITY]).all()


@EVERY
@pytest.mark.parametrize("contract", ["slots", "fused"])
def test_the_order_of_ids_inside_an_event_changes_nothing(name: str, contract: str) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        trace = drawn_trace(rng)
        order = rng.permuted(np.broadcast_to(np.arange(trace.top_k), trace.experts_TLK.shape), axis=2)
        shuffled = np.take_along_axis(trace.experts_TLK, order, axis=2)
        weights = np.take_along_axis(trace.weights_TLK, order, axis=2)  # type: ignore[arg-type]
        size = {"never": 0}.get(
            name, trace.num_experts * trace.num_layers if name == "unbounded" else trace.top_k + 2
        )
        setup = Setup(
            policy(name), np.array([min(size, trace.num_experts * trace.num_layers)]), contract=contract
        )
        other = type(trace)(
            **{
                **{f: getattr(trace, f) for f in trace.__dataclass_fields__},
                "experts_TLK": shuffled,
                "weights_TLK": weights,
            }
        )
        assert run(source_of(trace, 2), setup).ledger == run(source_of(other, 2), setup).ledger


@EVERY
def test_the_quick_loop_counts_the_misses_of_the_cache_core(name: str) -> None:
    if name.startswith(("static", "least-stale")) or policy(name).needs:
        pytest.skip(
            "a plain sequence of ids has no passes, weights or sequences, and nobody loads a static set"
        )
    for seed in range(10):
        ids = (np.random.default_rng(seed).zipf(1.3, 400) % 40).astype(np.int32)
        size = {"never": 0, "unbounded": 40}.get(name, 1 + seed * 4)
        full = run(
            source_of(one_layer(ids.tolist(), 40)), Setup(policy(name), np.array([size]), contract="access")
        )
        assert count_misses(ids, 40, size, policy(name), rng=np.random.default_rng(0)) == full.ledger.misses


def test_no_policy_beats_its_oracle_at_any_capacity() -> None:
    for seed in range(20):
        trace = drawn_trace(np.random.default_rng(seed))
        source = source_of(trace)
        for size in range(trace.top_k, trace.num_experts * trace.num_layers + 1, 3):
            misses = {
                name: run(source, Setup(policy(name), np.array([size]))).ledger.misses
                for name in SPECS
                if name
                not in (
                    "never",
                    "unbounded",
                    "static",
                    "static:fit=first-half",
                )  # loaded before the first use
            }
            assert misses["belady-bypass"] == min(misses.values())
            forced = {name: count for name, count in misses.items() if not policy(name).may_bypass}
            assert misses["belady-mandatory"] == min(forced.values()), (seed, size, misses)


def test_lru_and_the_optimum_never_get_worse_with_more_capacity() -> None:
    for seed in range(20):
        ids = np.random.default_rng(seed).integers(0, 30, 300).astype(np.int32)
        for name in ("lru", "belady-mandatory", "belady-bypass"):
            misses = [count_misses(ids, 30, size, policy(name)) for size in range(1, 31)]
            assert misses == sorted(misses, reverse=True)


def test_gdsf_of_equal_experts_is_lfuda_and_of_unequal_ones_lets_the_larger_go() -> None:
    for seed in range(20):
        trace = drawn_trace(np.random.default_rng(seed))
        size = np.array([trace.top_k + seed % 5])
        one, other = (run(source_of(trace), Setup(policy(n), size)).ledger for n in ("lfuda", "gdsf"))
        assert one == other
    # an expert of 2 and one of 4 fill the pool, both used once; gdsf lets the larger go, lfuda the one used earlier
    trace = trace_of([[[0], [0]], [[1], [-1]]], 2)
    for name, resident in (("gdsf", [0, 1]), ("lfuda", [1, 2])):
        engine = Engine(
            source_of(trace), Setup(policy(name), np.array([6]), size_per_layer=np.array([2, 4], np.int64))
        )
        engine.run()
        assert [x for x in range(4) if engine.state.expert[SLOT, x]] == resident


def test_least_stale_without_sides_is_lru() -> None:
    for seed in range(30):
        trace = drawn_trace(np.random.default_rng(seed))
        size = np.array([trace.top_k + seed % 7])
        lru, stale = (
            run(source_of(trace), Setup(policy(n), size)).ledger for n in ("lru", "least-stale:sides=false")
        )
        assert lru == stale


def test_with_a_quota_for_each_layer_and_no_prefetch_least_stale_is_lru() -> None:
    for seed in range(30):
        trace = drawn_trace(np.random.default_rng(seed))
        quota = np.full(trace.num_layers, min(trace.num_experts, trace.top_k + seed % 4))
        lru, stale = (run(source_of(trace), Setup(policy(n), quota)).ledger for n in ("lru", "least-stale"))
        assert lru == stale
        assert lru.collision == 0


def test_what_each_policy_prefetcher_and_miss_policy_takes_to_decide_has_been_measured() -> None:
    table = tomllib.loads(DECISIONS_FILE.read_text(encoding="utf-8"))
    assert set(table["policy_ns"]) == {name for name, found in POLICIES.items() if not found.is_bound}
    assert set(table["prefetch_ns"]) == {
        name for name, found in PREFETCHERS.items() if found.needs not in ("", "future")
    }
    # what a lossy miss decides takes no longer than the clock tells apart; what was not measured is absent, never 0
    assert set(table["miss_ns"]) <= set(MISS_POLICIES) - {"load"}
    measured = [v for group in ("policy_ns", "prefetch_ns", "miss_ns") for v in table[group].values()]
    assert np.concatenate([np.atleast_1d(value) for value in measured]).min() > 0
    assert decision_cost(policy("arc"), prefetcher("hot"), 51, miss_policy("skip")).ns > 0


def test_random_is_a_function_of_its_seed() -> None:
    source, setup = drawn_setup(np.random.default_rng(5), timed=False)
    same = [run(source, Setup(policy("random"), np.array([8]), seed=seed)).ledger for seed in (1, 1)]
    assert same[0] == same[1]
    assert setup.costs is None
