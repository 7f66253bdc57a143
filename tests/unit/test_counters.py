"""Counting misses without lists finds what the policies' own functions find."""

from __future__ import annotations

import numpy as np
import pytest
from codesign.sim.cache.access_loop import count_misses, count_with_policy, next_accesses
from codesign.sim.cache.counters import STRETCH
from codesign.sim.cache.registry import policy

COUNTED = ("fifo", "lru", "clock", "belady-mandatory")


def phases(rng: np.random.Generator, n: int) -> np.ndarray:
    """Ids used evenly, then a few hot ones, then evenly again: misses are common, rare, and common."""
    even, hot = rng.integers(0, n, 2 * STRETCH), rng.integers(0, max(2, n // 8), 2 * STRETCH)
    return np.concatenate([even, hot, even[::-1], hot[: STRETCH // 3]])


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("width", [np.int16, np.int32, np.uint32, np.int64])
def test_a_counter_finds_the_misses_of_its_policy_through_phases(name: str, width: type) -> None:
    ids = phases(np.random.default_rng(5), 90).astype(width)
    future = next_accesses(ids, 90) if policy(name).needs_future else np.zeros(0, np.int32)
    for capacity in (1, 2, 11, 40, 89):
        expected = count_with_policy(ids, 90, capacity, policy(name), future)
        assert count_misses(ids, 90, capacity, policy(name)) == expected


@pytest.mark.parametrize("name", COUNTED)
@pytest.mark.parametrize("seed", range(8))
def test_a_counter_finds_the_misses_of_its_policy_on_drawn_sequences(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 400))
    weight = 1 / np.arange(1, n + 1) ** rng.uniform(0, 1.5)
    ids = rng.choice(n, int(rng.integers(1, 5000)), p=weight / weight.sum()).astype(np.int32)
    future = next_accesses(ids, n) if policy(name).needs_future else np.zeros(0, np.int32)
    for capacity in {1, n // 3 + 1, n - 1, n, n + 5, int(rng.integers(1, n + 1))}:
        expected = count_with_policy(ids, n, capacity, policy(name), future)
        assert count_misses(ids, n, capacity, policy(name)) == expected


@pytest.mark.parametrize("name", COUNTED)
def test_no_access_and_no_capacity_are_counted_too(name: str) -> None:
    assert count_misses(np.zeros(0, np.int32), 4, 2, policy(name)) == 0
    assert count_misses(np.array([0, 1, 0], np.int32), 4, 0, policy(name)) == 3


def test_ids_that_do_not_lie_side_by_side_are_counted_as_they_are() -> None:
    ids = np.random.default_rng(0).integers(0, 20, 1000).astype(np.int32)
    assert count_misses(ids[::2], 20, 7, policy("lru")) == count_misses(ids[::2].copy(), 20, 7, policy("lru"))
