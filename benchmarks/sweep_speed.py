"""Scenarios per second of a sweep, two workers against one, and what a worker needs in memory.

    python benchmarks/sweep_speed.py

Every scenario is another one (nothing is deduplicated, no curve in one pass) and runs 10⁵ accesses through the full
timeline engine: a synthetic trace of OLMoE's shape, eight policies, three prefetchers, six capacities, several links.
Both sides run in fresh worker processes; starting them and compiling is outside the clock, which begins with the first
finished batch. Memory is the largest resident set of a worker.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import time
from pathlib import Path

from codesign.workbench.executors import run_in_processes
from codesign.workbench.study import load_study
from codesign.workbench.sweep_inputs import Inputs, prepare_inputs
from codesign.workbench.sweep_worker import Task

STUDY = """\
[traces.olmoe]
synth = {{model = "olmoe-1b-7b", tokens = {tokens}, sequences = 8, prefill = 8, reuse = 0.35, skew = 0.5, guess_recall = 0.8}}
[axes]
hardware = "rtx-4090"
link_bytes_per_s = {links}
policy = ["lru", "fifo", "lfu", "clock", "sieve", "random", "least-stale", "static"]
prefetch = ["none", "gate", "previous"]
capacity = ["5%", "10%", "15%", "25%", "50%", "75%"]
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--links", type=int, default=10, help="144 scenarios for each")
    parser.add_argument("--tokens", type=int, default=790)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sweep-speed-") as folder:
        study = Path(folder) / "study.toml"
        links = [round(1e9 * 1.4**step, 1) for step in range(options.links)]
        study.write_text(STUDY.format(tokens=options.tokens, links=links))
        plan = load_study(study)
        inputs = prepare_inputs(plan, Path(folder), Path(folder))
        points = [inputs.resolved(point) for point in plan.scenarios()]
        tasks = [Task(inputs.hash_of(point), point.model_dump()) for point in points]
        assert len({task.scenario for task in tasks}) == len(tasks), "every scenario is another one"
        warmed = drain(inputs, tasks[: len(tasks) // options.links], 1)  # compiles, once for all processes
        one, two = drain(inputs, tasks, 1), drain(inputs, tasks, 2)
    accesses = two.accesses / len(tasks)
    peak_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024 / 1e6
    print(
        f"{len(tasks):,} distinct scenarios of {accesses:,.0f} accesses, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    print(
        f"warm-up {warmed.seconds:.1f} s; one worker {one.rate:.0f} a second; two workers {two.rate:.0f} a second"
    )
    print(f"largest worker {peak_mb:.0f} MB; processor time a scenario {1e3 * two.cpu_s / len(tasks):.2f} ms")
    figures = {
        "scenarios_per_s": round(two.rate, 1),
        "two_over_one_worker_x": round(two.rate / one.rate, 2),
        "peak_worker_mb": round(peak_mb),
        "accesses_per_scenario": round(accesses),
        "cpu_ms_per_scenario": round(1e3 * two.cpu_s / len(tasks), 2),
    }
    print(json.dumps({"name": "sweep_speed", "figures": figures}))


class Drained:
    """What a run over all tasks came to."""

    def __init__(self, rate: float, seconds: float, accesses: int, cpu_s: float) -> None:
        self.rate, self.seconds, self.accesses, self.cpu_s = rate, seconds, accesses, cpu_s


def drain(inputs: Inputs, tasks: list[Task], workers: int) -> Drained:
    started, before = time.perf_counter(), children_s()
    begun, counted, accesses, first = 0.0, 0, 0, True
    for rows in run_in_processes(inputs, iter(tasks), workers):
        failed = [row["error"] for row in rows if row["status"] != "ok"]
        assert not failed, failed[0]
        accesses += sum(row["accesses"] for row in rows)
        if first:
            begun, first = time.perf_counter(), False
        else:
            counted += len(rows)
    ended = time.perf_counter()
    return Drained(counted / (ended - begun), ended - started, accesses, children_s() - before)


def children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
