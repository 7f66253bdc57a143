"""The circumstances that go beside every measurement: what machine, set up how, when, and how busy.

Builds on `telemetry.host_facts` (what this host is) and `probe` (which GPUs, and that there may be none: case B23).
`pinned` makes the part of it that we can choose: which cores, how many threads.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import UsageError
from .probe import probe_gpus
from .telemetry import host_facts

_CPU_FOLDER = Path("/sys/devices/system/cpu")
TIMES_DEPEND_ON = (
    "cpu",
    "machine",
    "cores",
    "governor",
    "threads",
    "gpus",
    "driver",
    "numpy",
    "numba",
    "torch",
    "triton",
)


@dataclass(frozen=True, slots=True)
class Environment:
    """One machine at one moment. What is not known is absent from `to_dict`, never 0 or empty."""

    cpu: str | None
    machine: str
    system: str
    cores: int
    """Cores that this process may run on."""
    memory_bytes: int | None
    governor: str | None
    """Frequency governor of the first core; None where the system does not tell (most virtual machines)."""
    last_level_cache_bytes: int | None
    threads: int | None
    """Threads of one kernel; None where nobody chose."""
    load: float | None
    """Processes that wanted to run during the last minute, at the start."""
    python: str
    packages: Mapping[str, str]
    gpus: tuple[str, ...]
    no_gpu_reason: str | None
    driver: str | None
    date: str
    """UTC, ISO 8601, to the second."""

    def to_dict(self) -> dict[str, object]:
        """Flat, of plain values, as a TOML header wants it."""
        names = [name for name in self.__slots__ if name != "packages"]
        found = {name: getattr(self, name) for name in names} | dict(self.packages)
        found["gpus"] = list(self.gpus) or None
        return {name: value for name, value in found.items() if value is not None}


def environment(threads: int | None = None) -> Environment:
    """This machine now. Never raises for what it cannot find out."""
    host, probe = host_facts(), probe_gpus()
    return Environment(
        cpu=host.cpu,
        machine=host.machine,
        system=host.system,
        cores=host.cores,
        memory_bytes=host.memory_bytes,
        governor=_governor(),
        last_level_cache_bytes=last_level_cache_bytes(),
        threads=threads,
        load=_load(),
        python=host.python,
        packages=host.packages,
        gpus=tuple(gpu.name for gpu in probe.gpus),
        no_gpu_reason=probe.reason,
        driver=probe.gpus[0].driver if probe.gpus else None,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def differences(there: Mapping[str, object], here: Mapping[str, object]) -> list[str]:
    """What times depend on and that differs between two environments (as `to_dict` gives them), one line each."""
    lines = []
    for name in TIMES_DEPEND_ON:
        old, new = there.get(name), here.get(name)
        if old != new:
            lines.append(
                f"{name}: {'absent' if old is None else old} there, {'absent' if new is None else new} here"
            )
    return lines


def last_level_cache_bytes(folder: Path = _CPU_FOLDER) -> int | None:
    """The largest cache that the first core sees, None where the system does not tell."""
    scale = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = []
    for entry in folder.glob("cpu0/cache/index*/size"):
        text = _text_of(entry)
        if text and text[:-1].isdigit() and text[-1] in scale:
            sizes.append(int(text[:-1]) * scale[text[-1]])
    return max(sizes, default=None)


def _governor(folder: Path = _CPU_FOLDER) -> str | None:
    return _text_of(folder / "cpu0/cpufreq/scaling_governor")


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip() or None
    except OSError:
        return None


def _load() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except (OSError, AttributeError):
        return None


def usable_cores() -> list[int]:
    """Cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextlib.contextmanager
def pinned(threads: int) -> Iterator[tuple[int, ...]]:
    """Run with `threads` threads on as many cores and no others; yields the cores, and puts everything back.

    Every thread of the process is moved (those of OpenMP pools too, which a call for the process leaves where they
    are); where the system does not move threads, their number alone is set. Raises `UsageError` for more threads
    than there are cores: times of threads that share a core are no times of a kernel.
    """
    cores = usable_cores()
    if not 1 <= threads <= len(cores):
        raise UsageError(
            f"threads must be between 1 and {len(cores)}, the cores that this process may use, got {threads}"
        )
    chosen = tuple(cores[:threads])
    with contextlib.ExitStack() as stack:
        stack.enter_context(_thread_counts(threads))
        if hasattr(os, "sched_setaffinity"):
            before = _affinities()
            stack.callback(_move, before, frozenset(cores))
            _move(dict.fromkeys(before, frozenset(chosen)), frozenset(chosen))
        yield chosen


@contextlib.contextmanager
def _thread_counts(threads: int) -> Iterator[None]:
    """torch and numba, as far as they are loaded: importing them here would cost seconds for nothing."""
    torch, numba = sys.modules.get("torch"), sys.modules.get("numba")
    before_torch = torch.get_num_threads() if torch else None
    before_numba = numba.get_num_threads() if numba else None
    try:
        if torch:
            torch.set_num_threads(threads)
        if numba:
            numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
        yield
    finally:
        if torch:
            torch.set_num_threads(before_torch)
        if numba:
            numba.set_num_threads(before_numba)


def _affinities() -> dict[int, frozenset[int]]:
    """Each thread of this process and the cores it may run on."""
    found = {}
    for entry in Path("/proc/self/task").iterdir() if Path("/proc/self/task").is_dir() else ():
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            found[int(entry.name)] = frozenset(os.sched_getaffinity(int(entry.name)))
    return found or {0: frozenset(os.sched_getaffinity(0))}


def _move(wanted: Mapping[int, frozenset[int]], others: frozenset[int]) -> None:
    """Give each thread its cores; threads born since get `others`."""
    for thread in {*_affinities(), *wanted}:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(thread, wanted.get(thread, others))
