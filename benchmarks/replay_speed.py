"""Accesses per second of the replay loop beside libCacheSim, on the same trace in the same run, on one core.

    python benchmarks/replay_speed.py

Contract `access`; Zipf(1.0), 5·10⁶ accesses; capacities of 5 % and 50 % of the ids. Ratios are ours ÷ the peer's rate
(above 1 is better), the geometric mean over both capacities; both get the best of the repeats. The first ratio is to
the peer as it comes, `tuned` to the peer with the hash table size it runs fastest with, capacity by capacity. Then our
own rates in the `slots` contract, and what compilation costs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import peer
from codesign import synthesise
from codesign.sim.blocks import BlockSource
from codesign.sim.cache.access_loop import count_misses, next_accesses
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Engine, Setup
from codesign.sim.engines.survey import next_uses, survey
from codesign.sim.passes import build_passes

POLICIES = tuple(peer.CLASSES)
SHORT = {"belady-mandatory": "belady"}
SHARES = (0.05, 0.5)
MUST_EQUAL = ("fifo", "lru", "belady-mandatory")
TIES = {
    "lfu": "ours: fewest uses since brought in, ties to the least recent use; the peer: ties to the first to reach the count",
    "clock": "ours: a hand over slots, newcomers unmarked; the peer: a queue with reinsertion, newcomers unmarked",
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--accesses", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, float | bool] = {}
    equal = True
    for num_ids in (1024, 14848):
        equal &= compare(num_ids, options.accesses, options.repeats, figures)
    figures["misses_equal"] = equal
    print("\nour rates in the slots contract (16 layers × 64 experts, top-8, one pool of 25 %):")
    slots_rates(figures)
    print(
        "\ncompilation, in a new process each (start of Python and imports included, 1,000 accesses replayed):"
    )
    compilation(figures)
    print(json.dumps({"name": "replay_speed", "figures": figures}))


def compare(num_ids: int, accesses: int, repeats: int, figures: dict[str, float | bool]) -> bool:
    weight = 1 / np.arange(1, num_ids + 1)
    ids = np.random.default_rng(0).choice(num_ids, accesses, p=weight / weight.sum()).astype(np.int32)
    future = next_accesses(ids, num_ids)
    equal = True
    print(
        f"\n{num_ids} ids, {accesses:,} accesses\n"
        "policy            capacity     M acc/s  peer M acc/s   ratio   tuned   misses − peer's"
    )
    with peer.scratch() as folder:
        trace = peer.write_trace(ids, future, Path(folder))
        for name in POLICIES:
            ratios, tuned = [], []
            for share in SHARES:
                capacity = int(num_ids * share)
                ours, seconds = best_of(name, ids, num_ids, capacity, future, repeats)
                theirs, peer_seconds, tuned_seconds = peer.run(name, trace, capacity, repeats)
                ratios.append(peer_seconds / seconds)
                tuned.append(tuned_seconds / seconds)
                if name in MUST_EQUAL:
                    equal &= ours == theirs
                print(
                    f"{name:18}{capacity:8}{accesses / seconds / 1e6:12.1f}{accesses / peer_seconds / 1e6:14.1f}"
                    f"{ratios[-1]:8.2f}{tuned[-1]:8.2f}{ours - theirs:+12,} of {theirs:,}"
                )
            figure = f"{SHORT.get(name, name)}_{num_ids}_x"
            figures[figure] = round(math.exp(np.mean(np.log(ratios))), 2)
            figures[f"{figure}_tuned"] = round(math.exp(np.mean(np.log(tuned))), 2)
            print(
                f"{'':18}geometric mean {figures[figure]:>27}{figures[f'{figure}_tuned']:8}"
                + (f"   tie rule: {TIES[name]}" if name in TIES else "")
            )
    return equal


def best_of(
    name: str, ids: np.ndarray, num_ids: int, capacity: int, future: np.ndarray, repeats: int
) -> tuple[int, float]:
    chosen = policy(name)
    count_misses(
        ids[:100], num_ids, capacity, chosen, next_uses=future[:100]
    )  # compiled before the clock starts
    best, misses = float("inf"), -1
    for _ in range(repeats):
        started = time.perf_counter()
        misses = count_misses(ids, num_ids, capacity, chosen, next_uses=future)
        best = min(best, time.perf_counter() - started)
    return misses, best


def slots_rates(figures: dict[str, float | bool]) -> None:
    trace = synthesise(
        num_tokens=4000,
        num_layers=16,
        num_experts=64,
        top_k=8,
        reuse=0.35,
        skew=0.5,
        rng=np.random.default_rng(0),
    )
    source = BlockSource(trace, build_passes(trace))
    look = survey(source)
    future = next_uses(source, look.accesses, by_access=False)
    for name in POLICIES:
        best = float("inf")
        for _ in range(3):
            engine = Engine(source, Setup(policy(name), np.array([256])), look=look, future=future)
            started = time.perf_counter()
            engine.run()
            best = min(best, time.perf_counter() - started)
        rate = look.accesses / best / 1e6
        figures[f"{SHORT.get(name, name)}_slots_m_per_s"] = round(rate, 2)
        print(f"{name:18}{rate:12.1f} M accesses/s")


_FIRST_REPLAY = """
import numpy as np
from codesign.sim.cache.access_loop import count_misses
from codesign.sim.cache.registry import policy
count_misses(np.arange(1000, dtype=np.int32) % 64, 64, 8, policy("lru"))
"""


def compilation(figures: dict[str, float | bool]) -> None:
    with tempfile.TemporaryDirectory(prefix="compiled-") as folder:
        environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
        for start in ("first", "second"):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", _FIRST_REPLAY], check=True, env=environment)
            seconds = time.perf_counter() - started
            figures[f"{start}_start_s"] = round(seconds, 2)
            print(f"{start} start{seconds:12.2f} s")


if __name__ == "__main__":
    main()
