"""The fast engine against the event-driven one, on the same scenario in the same run, results equal.

    python benchmarks/engine_speed.py

Least-Stale with gate prefetching over a contended link, batch 1, an OLMoE-shaped synthetic trace (16 layers × 64
experts, top-8) with one pool of 25, 50 and 75 % of the experts; chosen costs in which eight copies take longer than
the rest of a layer. Median of the repeats; the ratio is the geometric mean over the three. Compilation is not counted
(replay_speed.py prints what it costs).
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
from codesign.sim.engines.survey import Survey, survey
from codesign.sim.passes import build_passes
from codesign.sim.prefetch.registry import prefetcher

SHARES = (0.25, 0.5, 0.75)


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
    look = survey(source)
    ratios, equal, rates = [], True, []
    print(f"{look.accesses:,} accesses\ncapacity   numba k acc/s   simpy k acc/s   ratio   hits     late    collisions  wasted")
    for share in SHARES:
        setup = Setup(
            policy("least-stale"), np.array([int(share * 1024)]), prefetch=prefetcher("gate"), costs=costs(passes.count),
            decision_ns=2_000, record_events=True,
        )  # fmt: skip
        seconds, results = interleaved(source, setup, look, options.repeats)
        rate = {name: look.accesses / statistics.median(samples) / 1e3 for name, samples in seconds.items()}
        rates.append(rate)
        ratios.append(rate["numba"] / rate["simpy"])
        equal &= same(results["numba"], results["simpy"])
        ledger = results["numba"].ledger
        print(
            f"{share:8.0%}{rate['numba']:16,.0f}{rate['simpy']:16,.0f}{ratios[-1]:8.0f}{ledger.hit_rate:7.1%}"
            f"{ledger.late:9,}{ledger.collision:14,}{ledger.prefetch_wasted:8,}"
        )
    figures = {
        "numba_over_simpy_x": round(statistics.geometric_mean(ratios), 1),
        "results_equal": equal,
        "numba_accesses_per_s": round(1e3 * statistics.geometric_mean(rate["numba"] for rate in rates)),
        "simpy_accesses_per_s": round(1e3 * statistics.geometric_mean(rate["simpy"] for rate in rates)),
    }
    print(f"geometric mean of the ratios {figures['numba_over_simpy_x']}, results equal: {equal}")
    print(json.dumps({"name": "engine_speed", "figures": figures}))


def interleaved(
    source: BlockSource, setup: Setup, look: Survey, repeats: int
) -> tuple[dict[str, list[float]], dict[str, RunResult]]:
    """Seconds of each repeat of both engines, and what they found; both are warm."""
    seconds: dict[str, list[float]] = {"numba": [], "simpy": []}
    results: dict[str, RunResult] = {}
    for name in seconds:
        Engine(source, setup, look=look).run(name, stop_after=2)
    for _ in range(repeats):
        for name, samples in seconds.items():
            engine = Engine(source, setup, look=look)
            started = time.perf_counter()
            results[name] = engine.run(name)
            samples.append(time.perf_counter() - started)
    return seconds, results


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
