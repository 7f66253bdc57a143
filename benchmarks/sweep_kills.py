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
link_bytes_per_s = { low = 2e9, high = 64e9, log = true, steps = 24 }
policy = ["fifo", "lru", "lfu", "least-stale", "s3-fifo", "belady-mandatory"]
prefetch = ["none", "gate", "previous"]
capacity = ["5%", "10%", "20%", "40%"]
"""
_RUN = (
    "import sys; from codesign.workbench.sweep import sweep\n"
    "if __name__ == '__main__': sweep(sys.argv[1], out=sys.argv[2], resume=True, workers=int(sys.argv[3]))"
)
_SLOWER = 1.3  # a start after a kill, against the undisturbed one: other work on the machine
_TABLES = ("rows.parquet", "sequences.parquet", "layers.parquet")


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
        start_s, run_s = undisturbed([*command, str(folder / "whole"), str(asked.workers)], folder / "whole")
        print(f"undisturbed: {start_s:.1f} s to the first line, {run_s:.1f} s from there on")
        cut = [folder / "cut-1"]
        for number in range(asked.kills):
            while not killed([*command, str(cut[-1]), str(asked.workers)], 2.0 * run_s / asked.kills, start_s, rng):
                cut.append(folder / f"cut-{len(cut) + 1}")  # it ended before its kill: the next ones hit a new run
            print(f"  kill {number + 1}, run {len(cut)}: {lines_of(cut[-1]):,} lines in the journal", flush=True)
        subprocess.run([*command, str(cut[-1]), str(asked.workers)], check=True)
        same = all(
            (one / table).read_bytes() == (folder / "whole" / table).read_bytes() for one in cut for table in _TABLES
        )
        print(f"{asked.kills} kills of {len(cut)} runs; tables identical: {same}")
        if not same:
            raise SystemExit(1)


def killed(command: list[str], window_s: float, start_s: float, rng: np.random.Generator) -> bool:
    """Start a run and kill it at a random moment of its start or of a window behind that; False: it had ended by then."""
    process = subprocess.Popen(command, start_new_session=True)
    try:
        process.wait(float(rng.uniform(0.3, _SLOWER * start_s + window_s)))
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return True
    if process.returncode:
        raise SystemExit(process.returncode)
    return False


def lines_of(out: Path) -> int:
    journal = out / "journal.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def undisturbed(command: list[str], out: Path) -> tuple[float, float]:
    """Seconds to the first scenario in the journal (its first line names the study), and from there to the end."""
    started = time.monotonic()
    process = subprocess.Popen(command)
    first = None
    while process.poll() is None:
        if first is None and lines_of(out) > 1:
            first = time.monotonic()
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(process.returncode)
    ended = time.monotonic()
    return (first or ended) - started, ended - (first or ended)


if __name__ == "__main__":
    main()
