"""What this host's memory, arithmetic and storage really do: the numbers behind `sim/catalog/hardware/cpu-2core.toml`.

    python -m codesign.kernels.host_speed [FOLDER]

reads FOLDER's disk (the temporary folder by default) past the page cache and prints one line per number. Each figure is
the median of its repeats after one warm-up call, with the best beside it: on a shared machine the best is the
machine, the median is the machine and its neighbours. Needs no torch; with it, bf16 products are measured too.
"""

from __future__ import annotations

import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import RunError, UsageError

_MIB = 2**20
_COPY_BYTES = 256 * _MIB  # eight times the last-level cache of the machine in the catalog
_BLOCK = _MIB  # one read of O_DIRECT; larger ones varied by 47 % from run to run, 1 MiB ones by 4 %


@dataclass(frozen=True, slots=True)
class HostFigure:
    """One measured rate or time. `median` and `best` are in `unit`; `repeats` calls after one warm-up."""

    name: str
    median: float
    best: float
    unit: str
    repeats: int

    def line(self) -> str:
        return f"{self.name:<40} median {self.median:>12.4g}  best {self.best:>12.4g} {self.unit}  n={self.repeats}"


def seconds_of(call: Callable[[], object], repeats: int) -> list[float]:
    """Seconds of each of `repeats` calls, after one that is not counted."""
    if repeats < 1:
        raise UsageError(f"repeats must be at least 1, got {repeats}")
    call()
    samples = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        samples.append(time.perf_counter() - start)
    return samples


def _rate(name: str, work: float, unit: str, samples: list[float]) -> HostFigure:
    return HostFigure(name, work / statistics.median(samples), work / min(samples), unit, len(samples))


def memory_read(num_bytes: int = _COPY_BYTES, repeats: int = 7) -> HostFigure:
    """Bytes per second of one thread summing an array that no cache holds."""
    array = np.ones(num_bytes // 8, np.float64)
    return _rate("memory read, one thread", array.nbytes, "bytes/s", seconds_of(array.sum, repeats))


def memory_copy(num_bytes: int = _COPY_BYTES, repeats: int = 7) -> HostFigure:
    """Bytes copied per second by one thread (each is read once and written once)."""
    source, target = np.ones(num_bytes, np.uint8), np.zeros(num_bytes, np.uint8)
    return _rate(
        "memory copy, one thread", num_bytes, "bytes/s", seconds_of(lambda: np.copyto(target, source), repeats)
    )


def matrix_product_fp32(size: int = 1024, repeats: int = 7) -> HostFigure:
    """FLOP/s of a square fp32 product through numpy's BLAS, with the threads it has."""
    left, right = np.ones((size, size), np.float32), np.ones((size, size), np.float32)
    samples = seconds_of(lambda: left @ right, repeats)
    return _rate(f"fp32 product {size}³, numpy", 2.0 * size**3, "FLOP/s", samples)


def matrix_product_bf16(size: int = 1024, repeats: int = 5) -> HostFigure | None:
    """FLOP/s of a square bf16 product in torch, None without torch."""
    try:
        import torch
    except ImportError:
        return None
    left = torch.ones((size, size), dtype=torch.bfloat16)
    with torch.inference_mode():
        samples = seconds_of(lambda: left @ left, repeats)
    return _rate(f"bf16 product {size}³, torch", 2.0 * size**3, "FLOP/s", samples)


def storage_read(folder: str | Path | None = None, num_bytes: int = 64 * _MIB, repeats: int = 5) -> HostFigure | None:
    """Bytes per second of 1 MiB `O_DIRECT` reads of a fresh file; None where the file system refuses `O_DIRECT`."""
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        return None
    try:
        with tempfile.NamedTemporaryFile(dir=folder) as file:
            file.write(os.urandom(_MIB) * (num_bytes // _MIB))
            file.flush()
            os.fsync(file.fileno())
            try:
                handle = os.open(file.name, os.O_RDONLY | direct)
            except OSError:
                return None
            buffer = mmap.mmap(-1, _BLOCK)  # page-aligned, as O_DIRECT demands
            try:
                samples = seconds_of(lambda: _read_through(handle, buffer, num_bytes), repeats)
            finally:
                os.close(handle)
                buffer.close()
    except OSError as error:
        raise RunError(
            f"cannot measure storage in {folder or tempfile.gettempdir()}: {error.strerror or error}"
        ) from error
    return _rate("storage read, O_DIRECT 1 MiB", num_bytes, "bytes/s", samples)


def _read_through(handle: int, buffer: mmap.mmap, num_bytes: int) -> None:
    for offset in range(0, num_bytes, _BLOCK):
        os.preadv(handle, [buffer], offset)


def host_figures(folder: str | Path | None = None) -> list[HostFigure]:
    """Every figure that this host can give."""
    figures = [memory_read(), memory_copy(), matrix_product_fp32(), matrix_product_bf16(), storage_read(folder)]
    return [figure for figure in figures if figure is not None]


if __name__ == "__main__":
    for _figure in host_figures(sys.argv[1] if len(sys.argv) > 1 else None):
        sys.stdout.write(_figure.line() + "\n")
