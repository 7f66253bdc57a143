"""Measure what one event's decisions cost on this host, and write `sim/catalog/decisions.toml`.

    python benchmarks/decision_cost.py --write

On an OLMoE-shaped synthetic trace (16 layers × 64 experts, top-8, with gate guesses), in the `slots` contract and
one pool of 5 % and of 50 % of the experts: nanoseconds an event from knowing the experts to knowing who hits, who
misses, who goes and where the missing are put, that is the whole loop less gathering the union; for a prefetcher
the further time that asking it and reserving slots takes, with LRU; for a miss policy the further time with LRU in the
small pool (never below 0: what is not loaded saves evictions). Median of the repeats, in processor time of the one thread.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
from codesign import synthesise
from codesign.files import written_whole
from codesign.sim.blocks import BlockSource
from codesign.sim.cache.misses import MISS_POLICIES, miss_policy
from codesign.sim.cache.registry import POLICIES, policy
from codesign.sim.decisions import DECISIONS_FILE
from codesign.sim.engines.run import Engine, Setup
from codesign.sim.engines.survey import survey
from codesign.sim.passes import build_passes
from codesign.sim.prefetch.registry import PREFETCHERS, prefetcher

SHARES = (0.05, 0.5)
SETTING = {"host": "when=always", "lower": "above=0.6", "substitute": "below=0.05", "skip": "below=0.05"}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help="replace the catalog's file")
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    trace = synthesise(
        num_tokens=1000, num_layers=16, num_experts=64, top_k=8, reuse=0.35, skew=0.5, guess_recall=0.8, guesses=8,
        num_sequences=20, rng=np.random.default_rng(0),
    )  # fmt: skip
    weights = -np.sort(-np.random.default_rng(1).dirichlet(np.ones(8), trace.experts_TLK.shape[:2]))
    trace = replace(trace, weights_TLK=weights)
    passes = build_passes(trace)
    source = BlockSource(trace, passes, with_previous=True, with_predicted=True)
    look, events = survey(source), passes.count * trace.num_layers
    slots = [int(share * trace.num_layers * trace.num_experts) for share in SHARES]

    def per_event(name: str, capacity: int, ahead: str = "none", miss: str = "load") -> float:
        samples = []
        for _ in range(options.repeats + 1):
            setup = Setup(
                policy(name), np.array([capacity]), prefetch=prefetcher(ahead), miss=miss_policy(miss)
            )
            engine = Engine(source, setup, look=look)
            started = time.process_time()
            engine.run()
            samples.append((time.process_time() - started) / events * 1e9)
        return statistics.median(samples[1:])  # the first carried compilation

    gathering = []
    for _ in range(options.repeats):
        started = time.process_time()
        survey(source)
        gathering.append((time.process_time() - started) / events * 1e9)
    idle = statistics.median(gathering)
    online = [name for name, found in POLICIES.items() if not found.is_bound]
    policy_ns = {name: [round(per_event(name, size) - idle, 1) for size in slots] for name in online}
    lru = per_event("lru", slots[1])
    prefetch_ns = {
        name: round(per_event("lru", slots[1], name) - lru, 1)
        for name, found in PREFETCHERS.items()
        if found.needs in ("predicted", "previous", "history")
    }
    small = per_event("lru", slots[0])
    added = {
        name: round(per_event("lru", slots[0], miss=f"{name}:{SETTING[name]}") - small, 1)
        for name in MISS_POLICIES
        if name != "load"
    }
    miss_ns = {name: value for name, value in added.items() if value > 0}  # the others saved more than they cost
    print(f"{'policy':16}" + "".join(f"{f'{size} slots':>14}" for size in slots) + "   (ns an event)")
    for name, values in policy_ns.items():
        print(f"{name:16}" + "".join(f"{value:14.1f}" for value in values))
    for name, value in prefetch_ns.items():
        print(f"prefetch {name:13}{value:22.1f}")
    for name, value in miss_ns.items():
        print(f"miss {name:17}{value:22.1f}")
    if options.write:
        write(slots, policy_ns, prefetch_ns, miss_ns)
    figures = {f"{name}_ns": values[0] for name, values in policy_ns.items()}
    print(json.dumps({"name": "decision_cost", "figures": figures}))


def write(
    slots: list[int],
    policy_ns: dict[str, list[float]],
    prefetch_ns: dict[str, float],
    miss_ns: dict[str, float],
) -> None:
    day = datetime.now(UTC).date().isoformat()
    lines = [
        "# Written by benchmarks/decision_cost.py, whose docstring says how. Nanoseconds an event.",
        f'source = "benchmarks/decision_cost.py on {platform.machine()}, one core, {day}"',
        f"small_slots = {slots[0]}",
        f"large_slots = {slots[1]}",
        "",
        "[policy_ns]  # at the small and at the large pool",
        *(f"{name} = {values}" for name, values in policy_ns.items()),
        "",
        "[prefetch_ns]  # the oracles among the prefetchers are bounds and not listed",
        *(f"{name} = {value}" for name, value in prefetch_ns.items()),
        "",
        "[miss_ns]  # at the small pool, with LRU; absent where it saved more than it cost, so that its cost is unknown",
        *(f"{name} = {value}" for name, value in miss_ns.items()),
    ]
    with written_whole(DECISIONS_FILE) as part:
        part.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
