"""A sweep killed (SIGKILL, with its workers) at 50 random moments and resumed each time, against one that ran undisturbed.

    python benchmarks/sweep_kills.py [--kills 50] [--workers 2]

Prints how many scenarios each kill left done, and whether the final tables are the same bytes. The study is large enough
that the kills fall into every part of the run: start, compiled code being loaded, scenarios, journal lines half written.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

_STUDY = """
[traces.drawn]
synth = { model = "olmoe-1b-7b", tokens = 300, sequences = 6, prefill = 8, reuse = 0.35, skew = 0.5, guess_recall = 0.8 }
model = "olmoe-1b-7b"
[axes]
hardware = "rtx-4090"
link_bytes_per_s = { low = 2e9, high = 64e9, log = true, steps = 8 }
policy = ["fifo", "lru", "lfu", "least-stale", "s3-fifo", "belady-mandatory"]
prefetch = ["none", "gate", "previous"]
capacity = ["5%", "10%", "20%", "40%"]
"""
_RUN = (
    "import sys; from codesign.workbench.sweep import sweep\n"
    "if __name__ == '__main__': sweep(sys.argv[1], out=sys.argv[2], resume=True, workers=int(sys.argv[3]))"
)
_START_S = 3.0  # what a process needs before its first scenario, about
_TABLES = ("rows.parquet", "sequences.parquet")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--workers", type=int, default=2)
    asked = options.parse_args()
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "study.toml").write_text(_STUDY)
        command = [sys.executable, "-c", _RUN, str(folder / "study.toml")]
        started = time.monotonic()
        subprocess.run([*command, str(folder / "whole"), str(asked.workers)], check=True)
        undisturbed = time.monotonic() - started
        print(f"undisturbed: {undisturbed:.1f} s")
        killed = finished = 0
        for number in range(asked.kills):
            process = subprocess.Popen([*command, str(folder / "cut"), str(asked.workers)], start_new_session=True)
            try:
                process.wait(float(rng.uniform(0.3, _START_S + 2.0 * undisturbed / asked.kills)))
                finished += 1
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                killed += 1
            journal = folder / "cut" / "journal.jsonl"
            done = journal.read_bytes().count(b"\n") if journal.exists() else 0
            print(f"  kill {number + 1}: {done:,} lines in the journal", flush=True)
        subprocess.run([*command, str(folder / "cut"), str(asked.workers)], check=True)
        same = all((folder / "cut" / t).read_bytes() == (folder / "whole" / t).read_bytes() for t in _TABLES)
        print(f"{killed} kills, {finished} calls that ended before theirs; tables identical: {same}")
        if not same:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
