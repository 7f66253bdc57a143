"""Misses of LRU at 40 capacities: one pass against 40 runs of libCacheSim and of our own, in the same run on one core.

    python benchmarks/capacity_curve.py

Zipf(1.0) over 14,848 ids, 5·10⁶ accesses, capacities evenly spaced in the logarithm. Ratios are the peer's seconds ÷
ours (above 1 is better); `tuned` lets the peer have the hash table it runs fastest with at each capacity. The peer has
a tool for several sizes of one cache at once (`cachesim` with a comma list, one thread a size); its Python package does
not carry it, so it is not in the comparison: it makes the same 40 passes, spread over threads.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import peer
from codesign.sim.cache.access_loop import count_misses, next_accesses
from codesign.sim.cache.registry import policy
from codesign.sim.curves import lru_misses

NUM_IDS = 14_848
CAPACITIES = 40


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accesses", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    weight = 1 / np.arange(1, NUM_IDS + 1)
    ids = np.random.default_rng(0).choice(NUM_IDS, options.accesses, p=weight / weight.sum()).astype(np.int32)
    capacities = np.unique(np.geomspace(1, NUM_IDS, CAPACITIES + 8).round().astype(int))[
        -CAPACITIES:
    ].tolist()
    assert len(set(capacities)) == CAPACITIES
    lru_misses(ids[:1000], NUM_IDS)  # compiled before the clock starts
    count_misses(ids[:1000], NUM_IDS, 10, policy("lru"))

    one_pass, curve = float("inf"), np.zeros(0)
    for _ in range(options.repeats):
        started = time.perf_counter()
        curve = lru_misses(ids, NUM_IDS)
        one_pass = min(one_pass, time.perf_counter() - started)
    started = time.perf_counter()
    own = [count_misses(ids, NUM_IDS, capacity, policy("lru")) for capacity in capacities]
    own_runs = time.perf_counter() - started
    with peer.scratch() as folder:
        trace = peer.write_trace(ids, next_accesses(ids, NUM_IDS), Path(folder))
        runs = [peer.run("lru", trace, capacity, 1) for capacity in capacities]
    theirs, peer_s, tuned_s = (
        [run[0] for run in runs],
        sum(run[1] for run in runs),
        sum(run[2] for run in runs),
    )
    equal = own == theirs == [int(curve[capacity]) for capacity in capacities]

    rate = options.accesses / one_pass / 1e6
    print(
        f"{NUM_IDS:,} ids, {options.accesses:,} accesses, {CAPACITIES} capacities from {capacities[0]} to {capacities[-1]:,}"
    )
    print(f"one pass                 {one_pass:8.3f} s   {rate:.1f} M accesses/s, every capacity at once")
    print(f"40 runs of our own       {own_runs:8.3f} s   {own_runs / one_pass:.0f}×")
    print(f"40 runs of the peer      {peer_s:8.3f} s   {peer_s / one_pass:.0f}×")
    print(f"40 runs, peer tuned      {tuned_s:8.3f} s   {tuned_s / one_pass:.0f}×")
    print(f"misses equal at all 40: {equal}")
    figures = {
        "one_pass_over_peer_x": round(peer_s / one_pass, 1),
        "one_pass_over_peer_tuned_x": round(tuned_s / one_pass, 1),
        "one_pass_over_own_runs_x": round(own_runs / one_pass, 1),
        "hits_equal": equal,
    }
    print(json.dumps({"name": "capacity_curve", "figures": figures}))


if __name__ == "__main__":
    main()
