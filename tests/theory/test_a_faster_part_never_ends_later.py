"""Monotone machines: without prefetch no part that gets faster makes anything end later.

Why that holds. Decisions do not depend on time, so a faster part changes no miss. Without prefetch the link is idle
when an event begins, and all misses of an event are of one layer, so of equal length: they start, land and are computed
in the order in which they were asked for, whatever the speeds; a copy that waits for a slot (a wave) is asked for
in the order in which the experts before it are computed, which is that same order. With the order fixed every
time is a maximum of sums of durations, and such a maximum never falls when a duration rises.

Where it need not hold: with prefetch, copies of several layers and of two classes meet in the queue and their order
does depend on speed; and with decisions beside the compute stream.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Engine, RunResult
from codesign.sim.prefetch.registry import prefetcher

SEEDS = range(150)
SLOWER = {
    "copy_ns_C": lambda times: times * 2 + 1,
    "storage_ns_C": lambda times: times * 2 + 1,
    "expert_ns_CN": lambda times: times * 3,
    "before_ns_PC": lambda times: times + 5,
    "resident_ns_PC": lambda times: times + 5,
    "copy_engines": lambda engines: max(1, engines - 1),
}


def never_sooner(slow: RunResult, fast: RunResult) -> bool:
    return bool((slow.events["end"] >= fast.events["end"]).all()) and slow.ledger == fast.ledger


@pytest.mark.parametrize("part", SLOWER)
def test_no_event_ends_sooner_when_a_part_gets_slower_whatever_the_policy(
    part: str, engine: str, scenario
) -> None:
    mattered = 0
    for seed in SEEDS:
        source, setup = scenario(seed, prefetch=prefetcher("none"), decision_beside=False)
        costs = dataclasses.replace(setup.costs, **{part: SLOWER[part](getattr(setup.costs, part))})
        fast = Engine(source, setup).run(engine)
        slow = Engine(source, dataclasses.replace(setup, costs=costs)).run(engine)
        assert never_sooner(slow, fast), f"seed {seed}"
        mattered += slow.totals["makespan_ns"] > fast.totals["makespan_ns"]
    assert mattered > 10


def test_lru_in_slots_never_ends_later_over_a_faster_link_at_any_of_many_speeds(
    engine: str, scenario
) -> None:
    for seed in range(60):
        source, setup = scenario(
            seed, policy=policy("lru"), prefetch=prefetcher("none"), contract="slots", decision_beside=False,
            capacity_per_pool=np.array([3 * 4]),
        )  # fmt: skip
        ends = []
        for copy_ns in (1, 2, 3, 5, 9, 17, 64, 1000):
            copies = np.full_like(setup.costs.copy_ns_C, copy_ns)
            costs = dataclasses.replace(setup.costs, copy_ns_C=copies)
            ends.append(Engine(source, dataclasses.replace(setup, costs=costs)).run(engine).events["end"])
        assert (np.diff(np.stack(ends), axis=0) >= 0).all(), f"seed {seed}"
        assert ends[0][-1] < ends[-1][-1], f"seed {seed}"
