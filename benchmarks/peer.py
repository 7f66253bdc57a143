"""The peer, libCacheSim, on a plain sequence of ids: its own binary trace format, its own C loop."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import libcachesim
import numpy as np
from numpy.typing import NDArray

CLASSES = {"fifo": "FIFO", "lru": "LRU", "lfu": "LFU", "clock": "Clock", "belady-mandatory": "Belady"}
_RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
_HASH_POWERS = (12, 16, 20)  # sizes of the peer's hash table that a tuner would try


def write_trace(ids: NDArray[np.integer], next_uses: NDArray[np.int32], folder: Path) -> Path:
    """The oracleGeneral format, which carries next accesses (−1: none), so that the peer's Belady is valid."""
    records = np.zeros(len(ids), _RECORD)
    records["time"] = np.arange(len(ids)) // 1000
    records["id"] = ids.astype(np.uint64) + 1
    records["size"] = 1
    records["next"] = np.where(next_uses == np.iinfo(np.int32).max, -1, next_uses)
    path = folder / "trace.oracleGeneral.bin"
    records.tofile(path)
    return path


def run(name: str, trace: Path, capacity: int, repeats: int) -> tuple[int, float, float]:
    """Misses; the best seconds over repeats as the peer comes; and the same with its hash table tuned."""
    misses, default = _best_of(name, trace, capacity, repeats, {})
    tuned = min(_best_of(name, trace, capacity, repeats, {"hashpower": power})[1] for power in _HASH_POWERS)
    return misses, default, min(default, tuned)


def _best_of(name: str, trace: Path, capacity: int, repeats: int, options: dict[str, int]) -> tuple[int, float]:
    best, misses = float("inf"), -1
    for _ in range(repeats):
        reader = libcachesim.TraceReader(str(trace), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
        cache = getattr(libcachesim, CLASSES[name])(capacity, **options)
        total = reader.get_num_of_req()
        started = time.perf_counter()
        ratio, _ = cache.process_trace(reader)
        best = min(best, time.perf_counter() - started)
        misses = round(ratio * total)
    return misses, best


def scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="replay-speed-")
