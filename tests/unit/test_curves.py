"""Curves in one pass are what as many separate runs find, capacity by capacity."""

from __future__ import annotations

import codesign
import numpy as np
import pytest
from codesign.sim.cache.access_loop import count_misses
from codesign.sim.cache.registry import policy
from codesign.sim.curves import belady_misses, lru_misses, miss_curve, static_misses
from codesign.sim.engines.run import Setup, run
from codesign.sim.engines.survey import survey
from small_scenarios import drawn_trace, source_of


def drawn_ids(seed: int) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    weight = 1 / np.arange(1, n + 1) ** rng.uniform(0, 2)
    return rng.choice(n, int(rng.integers(1, 800)), p=weight / weight.sum()).astype(np.int32), n


@pytest.mark.parametrize("name", ["lru", "belady-mandatory"])
@pytest.mark.parametrize("seed", range(12))
def test_a_curve_equals_separate_runs_at_every_capacity(name: str, seed: int) -> None:
    ids, n = drawn_ids(seed)
    expected = [count_misses(ids, n, capacity, policy(name)) for capacity in range(n + 1)]
    assert miss_curve(name, ids, n).tolist() == expected


def test_moments_are_renumbered_many_times_and_nothing_changes() -> None:
    n = 300
    ids = np.random.default_rng(3).integers(0, n, 60_000).astype(np.int32)
    curve = lru_misses(ids, n)
    for capacity in (1, 17, 150, 299, 300):
        assert curve[capacity] == count_misses(ids, n, capacity, policy("lru"))


@pytest.mark.parametrize("seed", range(6))
def test_a_static_sets_curve_equals_runs_under_every_contract(seed: int) -> None:
    trace = drawn_trace(np.random.default_rng(seed))
    source = source_of(trace)
    curve = static_misses(survey(source).uses)
    for contract in ("slots", "fused", "access"):
        for capacity in {trace.top_k, len(curve) // 2, len(curve) - 1}:
            found = run(source, Setup(policy("static"), np.array([capacity]), contract=contract)).ledger
            assert found.misses == curve[capacity]


def test_the_hand_worked_sequences_of_the_published_fault_reports() -> None:
    """Cases B07 and B08: LRU and the optimum on short sequences, counted by hand."""
    cycle = np.array([0, 1, 2, 3, 0, 1, 2, 3], np.int32)
    assert lru_misses(cycle, 5).tolist() == [8, 8, 8, 8, 4, 4]
    assert belady_misses(cycle, 5).tolist() == [8, 8, 6, 5, 4, 4]
    classic = np.array([1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5], np.int32)
    assert lru_misses(classic, 6)[3:].tolist() == [10, 8, 5, 5]
    assert belady_misses(classic, 6)[3:].tolist() == [7, 6, 5, 5]


@pytest.mark.parametrize("seed", range(6))
def test_no_policy_beats_the_optimum_and_more_room_never_hurts_it(seed: int) -> None:
    ids, n = drawn_ids(seed)
    best, lru = belady_misses(ids, n), lru_misses(ids, n)
    assert (best <= lru).all()
    assert (np.diff(best) <= 0).all()
    for name in ("fifo", "lfu", "clock", "sieve"):
        for capacity in (1, max(1, n // 2)):
            assert best[capacity] <= count_misses(ids, n, capacity, policy(name))


def test_a_policy_without_inclusion_is_refused_and_the_known_ones_are_named() -> None:
    with pytest.raises(codesign.UsageError, match=r"'fifo'.*belady-mandatory, lru, static"):
        miss_curve("fifo", np.zeros(3, np.int32), 2)


@pytest.mark.parametrize("batch", [None, 3])
@pytest.mark.parametrize("seed", range(3))
def test_a_traces_curve_is_what_replay_counts_under_access(seed: int, batch: int | None) -> None:
    trace = drawn_trace(np.random.default_rng(seed))
    everything = trace.num_layers * trace.num_experts
    sizes = sorted({trace.top_k, everything // 3 + 1, everything - 1, everything})
    names = ("lru", "fifo", "clock", "lfu", "belady-mandatory", "static")
    found = codesign.curve(trace, policies=names, capacities=[str(size) for size in sizes], batch=batch)
    replayed = codesign.replay(
        trace, policies=names, capacities=[str(size) for size in sizes], contract="access", batch=batch
    ).rows.to_dict("records")
    counted = {
        (row["policy"], row["capacity_experts"]): row["misses"] for row in replayed if row["prefetch"] == "none"
    }
    for name in names:
        for size, misses in zip(found.capacities_C.tolist(), found.misses[name].tolist(), strict=True):
            assert misses == counted[name, size], (name, size)


def test_a_policy_without_a_curve_is_refused_with_the_ones_that_have_one() -> None:
    trace = drawn_trace(np.random.default_rng(0))
    with pytest.raises(codesign.UsageError, match="no curve for policy 'arc': known are lru, belady-mandatory"):
        codesign.curve(trace, policies=("lru", "arc"))
    with pytest.raises(codesign.UsageError, match=r"share \(5%\)"):
        codesign.curve(trace, capacities=("much",))
    with pytest.raises(codesign.UsageError, match=r"capacity 2GiB: a curve is over shares of all experts"):
        codesign.curve(trace, capacities=("5%", "2GiB"))
