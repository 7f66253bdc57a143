"""The conformance trace of the replay contracts, and the hand-computed sequences of cases B07 and B08."""

from __future__ import annotations

import numpy as np
import pytest
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Engine, RunResult, Setup, run
from small_scenarios import one_layer, source_of, trace_of


def replay(trace, name: str, capacity: int | list[int], contract: str = "slots") -> RunResult:  # type: ignore[no-untyped-def]
    return run(
        source_of(trace),
        Setup(policy(name), np.atleast_1d(np.asarray(capacity, np.int64)), contract=contract),
    )


def test_the_conformance_trace_gives_30_accesses_12_hits_and_18_misses() -> None:
    steps = [[[0, 1]] * 3] + [[[0, 1 + step % 3]] * 3 for step in range(1, 5)]
    engine = Engine(source_of(trace_of(steps, 4)), Setup(policy("lru"), np.array([2, 2, 2])))
    ledger = engine.run().ledger
    assert (ledger.accesses, ledger.hits, ledger.misses) == (30, 12, 18)


def test_each_event_of_the_conformance_trace_moves_2_2_2_experts_and_then_one_each() -> None:
    steps = [[[0, 1]] * 3] + [[[0, 1 + step % 3]] * 3 for step in range(1, 5)]
    moved = [
        run(
            source_of(trace_of(steps[: count + 1], 4)), Setup(policy("lru"), np.array([2, 2, 2]))
        ).ledger.experts_moved
        for count in range(5)
    ]
    assert np.diff([0, *moved]).tolist() == [6, 3, 3, 3, 3]


@pytest.mark.parametrize("name", ["lru", "fifo"])
def test_a_loop_over_four_ids_misses_always_until_all_four_fit(name: str) -> None:
    trace = one_layer([0, 1, 2, 3, 0, 1, 2, 3], 4)
    assert [replay(trace, name, size, "access").ledger.misses for size in (1, 2, 3, 4)] == [8, 8, 8, 4]


def test_the_forced_optimum_of_that_loop_is_8_6_5_4() -> None:
    trace = one_layer([0, 1, 2, 3, 0, 1, 2, 3], 4)
    for contract in ("access", "slots"):
        assert [replay(trace, "belady-mandatory", size, contract).ledger.misses for size in (1, 2, 3, 4)] == [
            8,
            6,
            5,
            4,
        ]


@pytest.mark.parametrize(
    ("name", "at_3", "at_4"), [("fifo", 9, 10), ("lru", 10, 8), ("belady-mandatory", 7, 6)]
)
def test_the_anomaly_sequence_has_its_published_misses(name: str, at_3: int, at_4: int) -> None:
    trace = one_layer([1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5], 6)
    misses = [replay(trace, name, size, "access").ledger.misses for size in (3, 4, 5, 6)]
    assert misses == [at_3, at_4, 5, 5]


def test_padding_is_no_access_and_never_indexes_the_last_expert() -> None:
    ids = [[[0, 1]], [[1, 2]], [[2, 3]], [[0, 3]], [[1, 3]], [[-1, -1]], [[-1, -1]], [[-1, -1]]]
    result = replay(trace_of(ids, 5), "lru", 2)
    assert (result.ledger.logical, result.ledger.accesses) == (10, 10)
