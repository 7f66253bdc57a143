"""The circumstances of a run: what host it was, and what a GPU was doing. Goes beside every measurement.

Two times can be compared only when these agree; a clock or a temperature that moved explains one that does not repeat.
"""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from types import ModuleType

from .probe import NoGpuError, ask, nvml

_PACKAGES = ("numpy", "numba", "torch", "triton")


@dataclass(frozen=True, slots=True)
class HostFacts:
    """This host. What it does not tell is None."""

    system: str
    machine: str
    cpu: str | None
    cores: int
    """Cores that this process may run on."""
    memory_bytes: int | None
    python: str
    packages: dict[str, str]
    """Versions of the packages that decide speed, as far as they are installed."""

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> list[str]:
        memory = f"{self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes is not None else "memory unknown"
        versions = ", ".join(f"{name} {version}" for name, version in self.packages.items())
        return [
            f"host: {self.cpu or self.machine}, {self.cores} cores, {memory}, {self.system}",
            f"python {self.python}, {versions}",
        ]


def host_facts() -> HostFacts:
    """What this host is. Never raises for what it cannot find out."""
    return HostFacts(
        system=f"{platform.system()} {platform.release()}",
        machine=platform.machine(),
        cpu=_cpu_name(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory_bytes=_memory_bytes(),
        python=sys.version.split()[0],
        packages={name: version for name in _PACKAGES if (version := _version(name)) is not None},
    )


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu_name(table: Path = Path("/proc/cpuinfo")) -> str | None:
    try:
        for line in table.read_text(errors="replace").splitlines():
            if line.lower().startswith("model name"):
                return line.partition(":")[2].strip() or None
    except OSError:
        pass
    return platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """What a GPU was doing at one moment. What the driver does not say is None."""

    index: int
    sm_clock_hz: float | None
    memory_clock_hz: float | None
    temperature_c: float | None
    power_w: float | None
    memory_used_bytes: int | None

    def to_dict(self) -> dict[str, object]:
        return asdict(self)

    def known(self) -> dict[str, float]:
        """What the driver told, without the number of the device."""
        return {name: v for name, v in asdict(self).items() if v is not None and name != "index"}


def gpu_samples() -> tuple[GpuSample, ...]:
    """One sample of each GPU; empty where there is none. Never raises."""
    try:
        with nvml() as binding:
            handles = [binding.nvmlDeviceGetHandleByIndex(i) for i in range(int(binding.nvmlDeviceGetCount()))]
            return tuple(_sample(binding, index, handle) for index, handle in enumerate(handles))
    except NoGpuError:
        return ()
    except Exception:  # a binding and a driver of unlike versions fail in many ways
        return ()


def gpu_sample(uuid: str) -> GpuSample | None:
    """One sample of the GPU with that UUID (without "GPU-"); None where the driver does not know it. Never raises.

    By UUID, because CUDA_VISIBLE_DEVICES renumbers devices for CUDA and not for the driver.
    """
    try:
        with nvml() as binding:
            handle = binding.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            return _sample(binding, int(binding.nvmlDeviceGetIndex(handle)), handle)
    except Exception:  # no driver, or a binding and a driver of unlike versions, which fail in many ways
        return None


def _sample(binding: ModuleType, index: int, handle: object) -> GpuSample:
    def number(question: str, *more: object, scale: float = 1.0) -> float | None:
        answer = ask(binding, question, handle, *more)
        return answer * scale if isinstance(answer, int | float) else None

    memory = ask(binding, "nvmlDeviceGetMemoryInfo", handle)
    used = getattr(memory, "used", None)
    return GpuSample(
        index=index,
        sm_clock_hz=number("nvmlDeviceGetClockInfo", 1, scale=1e6),  # NVML_CLOCK_SM
        memory_clock_hz=number("nvmlDeviceGetClockInfo", 2, scale=1e6),  # NVML_CLOCK_MEM
        temperature_c=number("nvmlDeviceGetTemperature", 0),  # NVML_TEMPERATURE_GPU
        power_w=number("nvmlDeviceGetPowerUsage", scale=1e-3),
        memory_used_bytes=None if used is None else int(used),
    )
