"""What a calibration measures: a device with its circumstances, its limits, and a bench set up on it for a while.

`workbench/calibrate.py` knows no more of a device than this. One class for the processor, one for a CUDA device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from ..errors import RunError, UsageError
from .arena import Arena
from .environment import environment, last_level_cache_bytes, pinned, usable_cores
from .probe import probe_gpus
from .registry import kernel
from .storage_file import storage_file
from .subjects import Bench
from .telemetry import gpu_sample

_ARENA_SHARE = 8  # of the memory: the other seven parts are other people's
_FALLBACK_CACHE_BYTES = 2**25
_INSTEAD = (
    "--device cpu measures the processor, and benchmarks/gpu_lane.py --tiny checks the kernels without a GPU"
)


class Device(Protocol):
    """One device to be measured."""

    @property
    def name(self) -> str:
        """As in `--device`: cpu, cuda:0."""
        ...

    @property
    def arena_bytes(self) -> int:
        """What the measured arrays may take together; the same in every run on this machine."""
        ...

    @property
    def nominal_rates(self) -> tuple[float, float]:
        """FLOP/s and bytes/s, order of magnitude: they only bound what is planned, which a resumed run must plan alike."""
        ...

    def environment(self) -> dict[str, Any]:
        """The circumstances that go beside its measurements; `device_name` and `device` where it is not the processor."""
        ...

    def bench(self, folder: Path | None = None) -> AbstractContextManager[Bench]:
        """A bench on it; with a folder, one that reads storage there, where the device's operations do that."""
        ...

    def sample(self) -> Mapping[str, float] | None:
        """Clocks, temperature, power now; None where nobody tells."""
        ...

    def out_of_memory(self, error: Exception) -> str | None:
        """The reason if the error says that a shape does not fit, what it held given back; None for other errors."""
        ...

    def failure(self, error: Exception) -> str | None:
        """The reason if the error says that the device itself failed, after which it measures nothing more; else None."""
        ...


@dataclass(frozen=True, slots=True)
class Processor:
    """The cores of this machine, `threads` of them."""

    threads: int
    name: str = "cpu"
    _LARGEST_ARENA_BYTES = 2**31
    _FLOPS_PER_S, _BYTES_PER_S = 100e9, 10e9  # of one thread

    @property
    def arena_bytes(self) -> int:
        return min(self._LARGEST_ARENA_BYTES, (environment().memory_bytes or 2**33) // _ARENA_SHARE)

    @property
    def nominal_rates(self) -> tuple[float, float]:
        return self._FLOPS_PER_S * self.threads, self._BYTES_PER_S * self.threads

    def environment(self) -> dict[str, Any]:
        return environment(self.threads).to_dict()

    @contextmanager
    def bench(self, folder: Path | None = None) -> Iterator[Bench]:
        with ExitStack() as stack:
            arena = Arena(self.arena_bytes)
            kernel("gemm").load("cpu")  # torch and numba must be there before their threads can be set
            stack.enter_context(pinned(self.threads))
            file = None if folder is None else stack.enter_context(storage_file(folder))
            yield Bench(arena, last_level_cache_bytes() or _FALLBACK_CACHE_BYTES, file)

    def sample(self) -> Mapping[str, float] | None:
        return None

    def out_of_memory(self, error: Exception) -> str | None:
        return f"does not fit into memory: {error}" if isinstance(error, MemoryError) else None

    def failure(self, error: Exception) -> str | None:
        return None  # a processor that fails tells nobody


@dataclass(frozen=True, slots=True)
class CudaDevice:
    """A CUDA device by its number among those that torch sees. Made by `open_device`, which looks for it."""

    index: int
    _LARGEST_ARENA_BYTES = 2**34
    _FLOPS_PER_S, _BYTES_PER_S = 100e12, 1e12

    @property
    def name(self) -> str:
        return f"cuda:{self.index}"

    @property
    def _facts(self) -> Any:
        import torch

        return torch.cuda.get_device_properties(self.index)

    @property
    def arena_bytes(self) -> int:
        return min(self._LARGEST_ARENA_BYTES, int(self._facts.total_memory) // _ARENA_SHARE)

    @property
    def nominal_rates(self) -> tuple[float, float]:
        return self._FLOPS_PER_S, self._BYTES_PER_S

    def environment(self) -> dict[str, Any]:
        facts = self._facts
        own = {
            "device": self.name,
            "device_name": str(facts.name),
            "device_memory_bytes": int(facts.total_memory),
            "compute_capability": f"{facts.major}.{facts.minor}",
            "multiprocessors": int(facts.multi_processor_count),
            "l2_cache_bytes": getattr(facts, "L2_cache_size", None),
        }
        return environment().to_dict() | {key: value for key, value in own.items() if value is not None}

    @contextmanager
    def bench(self, folder: Path | None = None) -> Iterator[Bench]:
        """`folder` is not used: storage is read by the host."""
        import torch

        from .timing import CpuStopwatch, CudaStopwatch

        with torch.cuda.device(self.index):  # Triton launches on the current device
            try:
                watch = CudaStopwatch(self.name)
                arena = Arena(self.arena_bytes, device=self.name)
            except torch.OutOfMemoryError as error:
                raise RunError(
                    f"{self.name} has no {self.arena_bytes / 2**30:.1f} GiB free, an eighth of its memory, to measure "
                    f"with: others use it ({_first_line(error)})"
                ) from error
            waited = CpuStopwatch(name="perf_counter, device waited for", wait=torch.cuda.synchronize)
            try:
                yield Bench(arena, 0, None, watch, waited)
            finally:
                torch.cuda.empty_cache()

    def sample(self) -> Mapping[str, float] | None:
        uuid = getattr(self._facts, "uuid", None)
        seen = None if uuid is None else gpu_sample(str(uuid))
        return None if seen is None else seen.known()

    def out_of_memory(self, error: Exception) -> str | None:
        import torch
        from triton.runtime.errors import OutOfResources

        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
            return f"does not fit into the device's memory: {_first_line(error)}"
        if isinstance(error, OutOfResources):
            return f"its tiles do not fit into a thread block: {_first_line(error)}"
        return None

    def failure(self, error: Exception) -> str | None:
        """Torch's name for it is `AcceleratorError`; libraries it calls and Triton say CUDA in a plain `RuntimeError`."""
        import torch

        named = isinstance(error, RuntimeError) and ("CUDA" in str(error) or "CUBLAS" in str(error))
        return _first_line(error) if named or isinstance(error, torch.AcceleratorError) else None


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def open_device(name: str = "cpu", *, threads: int | None = None) -> Device:
    """The device of that name: cpu (with `threads`, all usable cores if None), cuda or cuda:N.

    Raises `UsageError` for other names, for threads of a GPU, and where there is no such device: with what was looked for.
    """
    if name == "cpu":
        return Processor(threads or len(usable_cores()))
    found = re.fullmatch(r"cuda(?::(\d+))?", name)
    if found is None:
        raise UsageError(f"device {name!r}: known are cpu, cuda and cuda:N, such as cuda:0")
    if threads is not None:
        raise UsageError(f"threads are the processor's: leave them out with device {name}")
    index = int(found[1] or 0)
    count = _cuda_devices(name)
    if index >= count:
        those = "is 1 CUDA device, cuda:0" if count == 1 else f"are {count} CUDA devices, cuda:0 to cuda:{count - 1}"
        raise UsageError(f"device {name}: there {those}")
    from .gpu.launch import INTERPRETED

    if INTERPRETED.value:
        raise UsageError(f"device {name}: TRITON_INTERPRET is set, and times of Triton's interpreter say nothing: unset it")
    return CudaDevice(index)


def _cuda_devices(name: str) -> int:
    """How many devices torch and Triton can use. The driver is asked first: torch takes seconds to import."""
    looked = "looked for NVIDIA's management library (pynvml), its driver and a device"
    probe = probe_gpus()
    if not probe.gpus:
        raise UsageError(f"device {name}: no GPU: {probe.reason}; {looked}. {_INSTEAD}")
    import_module(".gpu", __package__)  # says what to install where torch or Triton is missing
    import torch

    if not torch.cuda.is_available() or not torch.cuda.device_count():
        raise UsageError(
            f"device {name}: the driver sees {len(probe.gpus)} GPU(s), but this torch can use none: install torch's CUDA "
            f"build, and see that CUDA_VISIBLE_DEVICES hides none. {_INSTEAD}"
        )
    return int(torch.cuda.device_count())
