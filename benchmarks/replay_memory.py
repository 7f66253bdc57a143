"""How much memory a replay of a large, memory-mapped trace needs, beside the size of the trace.

    python benchmarks/replay_memory.py

One process writes a synthetic trace (10⁷ token-layer rows, top-8 of 64 experts) and ends; a fresh one replays it from
the file with `codesign.replay` (counts only, LRU, 25 %). Its memory is read from /proc while it runs (Linux only):
`anonymous` is what it allocated, the memory that a longer trace may exhaust; the mapped file counts as resident
beside it, but the system takes those pages back when it needs them. A quarter of the trace is replayed too, so
that what grows with the trace (bytes a token-layer row) stands apart from what does not. The same again for LRU alone,
straight through the engine, without the bounds that `replay` always runs and that need to know the future.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

LAYERS, EXPERTS, TOP_K = 16, 64, 8
POLL_S = 0.002

_WRITE = """
import sys
import numpy as np
from codesign.traces import ExpertTrace, save_trace
path, tokens, layers, experts, top_k = sys.argv[1], *map(int, sys.argv[2:])
rng = np.random.default_rng(0)
ids = np.empty((tokens, layers, top_k), np.int8)
for low in range(0, tokens, 8192):  # keys drawn at random, the smallest top-k win: distinct ids, evenly loaded
    keys = rng.random((min(8192, tokens - low), layers, experts), dtype=np.float32)
    ids[low : low + 8192] = np.argpartition(keys, top_k, axis=2)[:, :, :top_k]
starts = np.arange(0, tokens, 1024)
is_prefill = np.arange(tokens) % 1024 < 32
save_trace(ExpertTrace(ids, np.arange(layers, dtype=np.int32), experts, starts, "synthetic", "a benchmark", "CC0-1.0",
                       True, is_prefill), path)
"""
# Each is first run on a small trace: in a process of its own, so that nothing is left to compile (compiling takes memory
# that Python keeps), and then in the process that is measured, so that libraries and compiled code are loaded.
_REPLAY = """
import sys
import codesign
def run(path):
    codesign.replay(path, policies=("lru",), capacities=("25%",))
"""
_LRU_ALONE = """
import sys
import numpy as np
from codesign.sim.blocks import BlockSource
from codesign.sim.cache.registry import policy
from codesign.sim.engines.run import Setup
from codesign.sim.engines import run as engines
from codesign.sim.passes import build_passes
from codesign.traces import read_trace
def run(path):
    trace = read_trace(path)
    capacity = np.array([trace.num_layers * trace.num_experts // 4])
    engines.run(BlockSource(trace, build_passes(trace)), Setup(policy("lru"), capacity))
"""
_BOTH = """
run(sys.argv[1])
print("small one done", flush=True)
sys.stdin.readline()
run(sys.argv[2])
"""


class Memory(NamedTuple):
    """Bytes of one process, at their highest unless said otherwise."""

    before: int
    """Anonymous, just before the large trace is read: Python, libraries, compiled code."""
    anonymous: int
    mapped: int
    resident: int
    """VmHWM: the highest sum of anonymous and mapped."""
    maxrss: int
    """ru_maxrss, as the system gave it when the process ended."""
    seconds: float

    @property
    def for_the_trace(self) -> int:
        return self.anonymous - self.before


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="token-layer rows")
    options = parser.parse_args()
    tokens = options.rows // LAYERS
    stored, accesses = tokens * LAYERS * TOP_K, tokens * LAYERS * TOP_K
    print(f"{tokens * LAYERS:,} token-layer rows, top-{TOP_K} of {EXPERTS} experts")
    print(f"the trace: {_mb(stored)} as stored (int8), {_mb(4 * accesses)} as the int32 that engines read\n")
    figures: dict[str, float] = {
        "rows": tokens * LAYERS, "trace_mb": round(stored / 1e6, 1), "trace_int32_mb": round(4 * accesses / 1e6, 1),
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="replay-memory-") as folder:
        small, quarter, whole = (
            _write(Path(folder) / f"{name}.safetensors", size)
            for name, size in (("small", 200), ("quarter", tokens // 4), ("whole", tokens))
        )
        for name, program in (("replay", _REPLAY), ("lru alone", _LRU_ALONE)):
            part, full = (_measure(program, small, path) for path in (quarter, whole))
            growth = (full.for_the_trace - part.for_the_trace) / ((tokens - tokens // 4) * LAYERS)
            _show(name, full, stored)
            print(f"  grows by {growth:.1f} bytes a token-layer row (stored {TOP_K}, as int32 {4 * TOP_K})\n")
            key = name.replace(" ", "_")
            figures |= {
                f"{key}_maxrss_mb": round(full.maxrss / 1e6, 1),
                f"{key}_anonymous_mb": round(full.anonymous / 1e6, 1),
                f"{key}_anonymous_for_trace_mb": round(full.for_the_trace / 1e6, 1),
                f"{key}_anonymous_to_trace": round(full.for_the_trace / stored, 3),
                f"{key}_bytes_a_row": round(growth, 2),
                f"{key}_s": round(full.seconds, 1),
            }
    print(json.dumps({"name": "replay_memory", "figures": figures}))


def _write(path: Path, tokens: int) -> Path:
    shape = (str(number) for number in (tokens, LAYERS, EXPERTS, TOP_K))
    subprocess.run([sys.executable, "-c", _WRITE, str(path), *shape], check=True)
    return path


def _measure(program: str, small: Path, large: Path) -> Memory:
    """Run `program` on both files in a fresh process and watch its memory while it works on the large one."""
    subprocess.run([sys.executable, "-c", program + "run(sys.argv[1])", str(small)], check=True)
    command = [sys.executable, "-c", program + _BOTH, str(small), str(large)]
    # This process stays small: a new one's ru_maxrss begins with that of the one that started it.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SystemExit("the process that replays ended early")
    status = Path(f"/proc/{process.pid}/status")
    before = _read(status)["RssAnon"]
    started = time.perf_counter()
    process.stdin.write("go\n")
    process.stdin.flush()
    highest = {"RssAnon": 0, "RssFile": 0, "VmHWM": 0}
    while True:
        now = _read(status)
        if "RssAnon" not in now:  # it has ended, and its memory is gone
            break
        highest = {name: max(value, now[name]) for name, value in highest.items()}
        time.sleep(POLL_S)
    _, code, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(code)
    if process.returncode:
        raise SystemExit(f"the process that replays ended with {process.returncode}")
    return Memory(
        before, highest["RssAnon"], highest["RssFile"], highest["VmHWM"], usage.ru_maxrss * 1024, seconds
    )


def _read(status: Path) -> dict[str, int]:
    """Bytes by name from /proc/PID/status; names of memory are missing once the process has ended."""
    lines = (line.split() for line in status.read_text().splitlines() if line.endswith(" kB"))
    return {words[0].rstrip(":"): int(words[1]) * 1024 for words in lines}


def _show(name: str, memory: Memory, stored: int) -> None:
    share = memory.for_the_trace / stored
    print(f"{name} ({memory.seconds:.1f} s)")
    print(f"  anonymous at its peak {_mb(memory.anonymous)}; {_mb(memory.before)} of it were there before")
    print(f"  for the trace {_mb(memory.for_the_trace)} = {share:.2f} × the trace as stored")
    print(
        f"  mapped at its peak {_mb(memory.mapped)}, resident {_mb(memory.resident)}, ru_maxrss {_mb(memory.maxrss)}"
    )


def _mb(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"


if __name__ == "__main__":
    main()
