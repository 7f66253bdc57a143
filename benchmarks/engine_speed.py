"""The fast engine against the event-driven one, on the same scenario in the same run, results equal.

    python benchmarks/engine_speed.py

Least-Stale with gate prefetching over a contended link, batch 1, an OLMoE-shaped synthetic trace (16 layers × 64
experts, top-8) with one pool of 25 % of the experts; drawn costs in which copies take about as long as compute.
Median of the repeats; compilation is not counted (replay_speed.py prints what it costs).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import time

import numpy as np
from codesign import synthesise
from codesign.sim.blocks import BlockSource
from codesign.sim.cache.registry import policy
from codesign.sim.costs import CostTable
from codesign.sim.engines.run import Engine, RunResult, Setup
from codesign.sim.engines.survey import survey
from codesign.sim.passes import build_passes
from codesign.sim.prefetch.registry import prefetcher


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1500)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    trace = synthesise(
        num_tokens=options.tokens, num_layers=16, num_experts=64, top_k=8, reuse=0.35, skew=0.5, guess_recall=0.8,
        guesses=8, rng=np.random.default_rng(0),
    )  # fmt: skip
    passes = build_passes(trace)
    source = BlockSource(trace, passes, with_predicted=True)
    setup = Setup(
        policy("least-stale"), np.array([256]), prefetch=prefetcher("gate"), costs=costs(passes.count),
        decision_ns=2_000, record_events=True,
    )  # fmt: skip
    look = survey(source)
    accesses = look.accesses
    Engine(source, setup, look=look).run("numba")
    seconds: dict[str, list[float]] = {"numba": [], "simpy": []}
    results: dict[str, RunResult] = {}
    for _ in range(options.repeats):
        for name, samples in seconds.items():
            engine = Engine(source, setup, look=look)
            started = time.perf_counter()
            results[name] = engine.run(name)
            samples.append(time.perf_counter() - started)
    rate = {name: accesses / statistics.median(samples) for name, samples in seconds.items()}
    equal = same(results["numba"], results["simpy"])
    ledger = results["numba"].ledger
    print(f"{accesses:,} accesses; {ledger.late:,} late, {ledger.collision:,} collisions, {ledger.prefetch_wasted:,} wasted")
    for name, value in rate.items():
        print(f"{name:8}{value / 1e3:14,.0f} k accesses/s")
    print(f"ratio   {rate['numba'] / rate['simpy']:14,.0f} ×, results equal: {equal}")
    figures = {
        "numba_over_simpy_x": round(rate["numba"] / rate["simpy"], 1),
        "results_equal": equal,
        "numba_accesses_per_s": round(rate["numba"]),
        "simpy_accesses_per_s": round(rate["simpy"]),
    }
    print(json.dumps({"name": "engine_speed", "figures": figures}))


def costs(passes: int) -> CostTable:
    """Eight copies take about as long as the rest of a layer, so the link is contended."""

    def each(value: int) -> np.ndarray:
        return np.full((passes, 1), value, np.int64)

    return CostTable(
        layer_class_L=np.zeros(16, np.int32),
        before_ns_PC=each(60_000),
        resident_ns_PC=each(0),
        expert_ns_CN=np.array([[0, 9_000]], np.int64),
        after_ns_PC=each(5_000),
        copy_ns_C=np.array([40_000], np.int64),
        storage_ns_C=np.array([400_000], np.int64),
        expert_bytes_C=np.array([1], np.int64),
        copy_engines=1,
        source="chosen for this benchmark",
        provenance=(),
    )


def same(left: RunResult, right: RunResult) -> bool:
    assert left.events is not None
    assert right.events is not None
    return (
        dataclasses.asdict(left.ledger) == dataclasses.asdict(right.ledger)
        and left.totals == right.totals
        and all(np.array_equal(left.events[name], right.events[name]) for name in left.events)
    )


if __name__ == "__main__":
    main()
