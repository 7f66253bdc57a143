"""The fast engine equals the event-driven one: every layer's times, every count, every byte."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest
from codesign.sim.engines.run import Engine, RunResult
from small_scenarios import drawn_setup

SCENARIOS = 1500
SEEN: Counter[str] = Counter()


def assert_equal(left: RunResult, right: RunResult, seed: int) -> None:
    assert left.events is not None
    assert right.events is not None
    for name in left.events:
        np.testing.assert_array_equal(left.events[name], right.events[name], err_msg=f"seed {seed}: {name}")
    for name in ("pass_start_ns", "pass_end_ns", "layer_stall_ns", "layer_counts", "pass_hits"):
        np.testing.assert_array_equal(
            getattr(left, name), getattr(right, name), err_msg=f"seed {seed}: {name}"
        )
    assert dataclasses.asdict(left.ledger) == dataclasses.asdict(right.ledger), f"seed {seed}"
    assert left.totals == right.totals, f"seed {seed}"


def note(result: RunResult) -> None:
    ledger = result.ledger
    for name in (
        "hits", "late", "collision", "compulsory", "capacity", "waves", "bypasses", "prefetch_used", "prefetch_late",
        "prefetch_evicted_unused", "prefetch_unused_at_end", "prefetch_refused", "first_load_bytes",
        "computed_on_host", "lowered", "substituted", "skipped",
    ):  # fmt: skip
        SEEN[name] += bool(getattr(ledger, name))
    SEEN["withdrawn"] += bool(result.totals and result.totals["withdrawn"])


@pytest.mark.parametrize("part", range(10))
def test_both_engines_give_the_same_times_counts_and_bytes_on_drawn_scenarios(part: int) -> None:
    for seed in range(part * SCENARIOS // 10, (part + 1) * SCENARIOS // 10):
        source, setup = drawn_setup(np.random.default_rng(seed))
        slow = Engine(source, setup).run("simpy")
        fast = Engine(source, setup).run("numba")
        assert_equal(slow, fast, seed)
        note(fast)


def test_the_drawn_scenarios_met_every_kind_of_miss_and_every_fate_of_a_prefetch() -> None:
    rare = {name: times for name, times in SEEN.items() if times < 10}
    assert SEEN
    assert not rare
