"""Which GPUs are here. That there is none is an answer, never an error.

Three separate things can be missing (case B23): the Python binding, the driver's shared library, the loaded driver. All
three mean "no GPU", said in one line. Only who demands a GPU gets an error.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType

from ..errors import RunError


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU as the driver describes it. What the driver does not say is None."""

    index: int
    name: str
    memory_bytes: int | None
    driver: str | None
    compute_capability: str | None

    def line(self) -> str:
        memory = f", {self.memory_bytes / 2**30:.1f} GiB" if self.memory_bytes is not None else ""
        capability = f", compute capability {self.compute_capability}" if self.compute_capability else ""
        return f"GPU {self.index}: {self.name}{memory}{capability}, driver {self.driver or 'unknown'}"


@dataclass(frozen=True, slots=True)
class GpuProbe:
    """The GPUs of this machine, and why there are none where there are none."""

    gpus: tuple[Gpu, ...]
    reason: str | None

    def lines(self) -> list[str]:
        """One line a GPU, or one line that says there is none and why."""
        return [gpu.line() for gpu in self.gpus] or [f"no GPU: {self.reason}"]


class NoGpuError(Exception):
    """There is no GPU to ask; the message is the reason. Caught inside this folder."""


@contextmanager
def nvml() -> Iterator[ModuleType]:
    """The initialised NVML binding, shut down afterwards. Raises `NoGpuError` with the reason where there is none."""
    try:
        binding = importlib.import_module("pynvml")
    except ImportError as error:
        raise NoGpuError("the module pynvml is not installed (package nvidia-ml-py)") from error
    except OSError as error:
        raise NoGpuError(f"the NVIDIA library cannot be loaded ({error})") from error
    try:
        binding.nvmlInit()
    except (binding.NVMLError, OSError, AttributeError) as error:
        raise NoGpuError(_why(binding, error)) from error
    try:
        yield binding
    finally:
        binding.nvmlShutdown()


def _why(binding: ModuleType, error: Exception) -> str:
    code = getattr(error, "value", None)
    if code is not None and code == getattr(binding, "NVML_ERROR_LIBRARY_NOT_FOUND", object()):
        return "the NVIDIA management library is not installed"
    if code is not None and code == getattr(binding, "NVML_ERROR_DRIVER_NOT_LOADED", object()):
        return "the NVIDIA driver is not loaded"
    return f"the NVIDIA library does not answer ({error})"


def probe_gpus() -> GpuProbe:
    """The GPUs of this machine. Never raises."""
    try:
        with nvml() as binding:
            count = int(binding.nvmlDeviceGetCount())
            gpus = tuple(_describe(binding, index) for index in range(count))
            return GpuProbe(gpus, None if gpus else "the NVIDIA driver sees no device")
    except NoGpuError as reason:
        return GpuProbe((), str(reason))
    except Exception as error:  # a binding and a driver of unlike versions fail in many ways
        return GpuProbe((), f"the NVIDIA library does not answer ({error})")


def require_gpus() -> tuple[Gpu, ...]:
    """The GPUs of this machine; `RunError` with the reason where there are none."""
    probe = probe_gpus()
    if not probe.gpus:
        raise RunError(f"a GPU is needed, but there is none: {probe.reason}")
    return probe.gpus


def _describe(binding: ModuleType, index: int) -> Gpu:
    handle = binding.nvmlDeviceGetHandleByIndex(index)
    capability = ask(binding, "nvmlDeviceGetCudaComputeCapability", handle)
    memory = ask(binding, "nvmlDeviceGetMemoryInfo", handle)
    return Gpu(
        index=index,
        name=_text(ask(binding, "nvmlDeviceGetName", handle)) or "unknown",
        memory_bytes=None if memory is None else int(memory.total),  # type: ignore[attr-defined]  # a ctypes structure
        driver=_text(ask(binding, "nvmlSystemGetDriverVersion")),
        compute_capability=".".join(map(str, capability)) if isinstance(capability, list | tuple) else None,
    )


def ask(binding: ModuleType, question: str, *arguments: object) -> object | None:
    """The driver's answer, None where this device or driver does not know the question."""
    try:
        answer: object = getattr(binding, question)(*arguments)
    except (binding.NVMLError, AttributeError):
        return None
    return answer


def _text(value: object | None) -> str | None:
    """Older bindings answer in bytes."""
    if value is None:
        return None
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
