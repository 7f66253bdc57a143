"""No GPU is an answer, in all its three ways (case B23), and a GPU is described."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType, SimpleNamespace

import pytest
from codesign.errors import RunError
from codesign.kernels.probe import probe_gpus, require_gpus
from codesign.kernels.telemetry import gpu_samples, host_facts


class RefusedError(Exception):
    def __init__(self, value):
        super().__init__(f"code {value}")
        self.value = value


def stub(init_code=None, gpus=(), **extra):
    """A binding whose start fails with a code, or that has the given GPUs."""
    module = ModuleType("pynvml")
    calls = []

    def start():
        if init_code is not None:
            raise RefusedError(init_code)
        calls.append("init")

    module.calls = calls
    module.NVMLError = RefusedError
    module.NVML_ERROR_LIBRARY_NOT_FOUND, module.NVML_ERROR_DRIVER_NOT_LOADED = 12, 9
    module.nvmlInit = start
    module.nvmlShutdown = lambda: calls.append("shutdown")
    module.nvmlDeviceGetCount = lambda: len(gpus)
    module.nvmlDeviceGetHandleByIndex = lambda index: gpus[index]
    module.nvmlDeviceGetName = lambda gpu: gpu.name
    module.nvmlDeviceGetMemoryInfo = lambda gpu: SimpleNamespace(total=gpu.total, used=gpu.used)
    module.nvmlSystemGetDriverVersion = lambda: b"570.1"
    module.nvmlDeviceGetCudaComputeCapability = lambda gpu: (9, 0)
    for name, value in extra.items():
        setattr(module, name, value)
    return module


H200 = SimpleNamespace(name=b"NVIDIA H200", total=143771 * 2**20, used=2**30)


@pytest.fixture
def binding(monkeypatch):
    def use(module):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        return module

    return use


def test_a_binding_that_is_not_installed_means_no_gpu(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    probe = probe_gpus()
    assert probe.gpus == ()
    assert probe.lines() == ["no GPU: the module pynvml is not installed (package nvidia-ml-py)"]


def test_a_library_that_is_not_there_means_no_gpu(binding):
    binding(stub(12))
    assert probe_gpus().lines() == ["no GPU: the NVIDIA management library is not installed"]


def test_a_driver_that_is_not_loaded_means_no_gpu(binding):
    binding(stub(9))
    assert probe_gpus().lines() == ["no GPU: the NVIDIA driver is not loaded"]


def test_a_binding_whose_import_cannot_load_its_library_means_no_gpu(monkeypatch):
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    real = importlib.import_module

    def failing(name, *rest):
        if name == "pynvml":
            raise OSError("libnvidia-ml.so.1: cannot open shared object file")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", failing)
    assert probe_gpus().lines()[0].startswith("no GPU: the NVIDIA library cannot be loaded (libnvidia-ml.so.1")


@pytest.mark.parametrize("failure", [RefusedError(999), OSError("broken"), AttributeError("nvmlInit")])
def test_any_other_failure_to_start_means_no_gpu(binding, failure):
    def start():
        raise failure

    binding(stub(nvmlInit=start))
    lines = probe_gpus().lines()
    assert len(lines) == 1
    assert lines[0].startswith("no GPU: the NVIDIA library does not answer")


def test_a_driver_that_sees_no_device_means_no_gpu(binding):
    binding(stub(gpus=()))
    assert probe_gpus().lines() == ["no GPU: the NVIDIA driver sees no device"]


def test_a_count_that_fails_means_no_gpu_and_the_library_is_closed(binding):
    def fail():
        raise RefusedError(1)

    module = binding(stub(gpus=(H200,), nvmlDeviceGetCount=fail))
    assert probe_gpus().gpus == ()
    assert module.calls == ["init", "shutdown"]


def test_a_gpu_is_described_and_the_library_is_closed(binding):
    module = binding(stub(gpus=(H200,)))
    (gpu,) = probe_gpus().gpus
    assert gpu.name == "NVIDIA H200"
    assert gpu.line() == "GPU 0: NVIDIA H200, 140.4 GiB, compute capability 9.0, driver 570.1"
    assert module.calls == ["init", "shutdown"]
    assert require_gpus() == (gpu,)
    assert module.calls == ["init", "shutdown"] * 2


def test_what_a_driver_does_not_say_is_absent_never_zero(binding):
    def unknown(*_):
        raise RefusedError(3)

    binding(stub(gpus=(H200,), nvmlDeviceGetMemoryInfo=unknown, nvmlDeviceGetCudaComputeCapability=unknown))
    (gpu,) = probe_gpus().gpus
    assert gpu.memory_bytes is None
    assert gpu.compute_capability is None
    (sample,) = gpu_samples()
    assert sample.memory_used_bytes is None
    assert sample.power_w is None


def test_a_sample_has_units(binding):
    binding(
        stub(
            gpus=(H200,),
            nvmlDeviceGetClockInfo=lambda gpu, kind: {1: 1980, 2: 3201}[kind],
            nvmlDeviceGetTemperature=lambda gpu, kind: 41,
            nvmlDeviceGetPowerUsage=lambda gpu: 123_456,
        )
    )
    (sample,) = gpu_samples()
    assert sample.to_dict() == {
        "index": 0, "sm_clock_hz": 1.98e9, "memory_clock_hz": 3.201e9, "temperature_c": 41, "power_w": 123.456,
        "memory_used_bytes": 2**30,
    }  # fmt: skip


def test_only_who_demands_a_gpu_gets_an_error(binding):
    binding(stub(9))
    assert gpu_samples() == ()
    with pytest.raises(RunError, match=r"a GPU is needed, but there is none: the NVIDIA driver is not loaded") as caught:
        require_gpus()
    assert caught.value.exit_code == 1


def test_importing_the_probe_imports_no_binding():
    code = "import sys, codesign.kernels.probe, codesign.kernels.telemetry; print('pynvml' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_host_facts_say_what_this_host_is():
    facts = host_facts()
    assert facts.cores >= 1
    assert facts.memory_bytes is None or facts.memory_bytes > 2**28
    assert facts.packages["numpy"]
    assert facts.to_dict()["python"] == sys.version.split()[0]
    assert len(facts.lines()) == 2
