"""What goes beside a measurement, on any machine: no GPU, no governor, no driver is an answer."""

from __future__ import annotations

import datetime
import importlib
import os
import subprocess
import sys
import threading
from types import ModuleType

import pytest
from codesign.errors import UsageError
from codesign.kernels.environment import (
    differences,
    environment,
    last_level_cache_bytes,
    pinned,
    usable_cores,
)


def test_an_environment_says_what_times_depend_on():
    facts = environment(threads=1).to_dict()
    assert facts["cores"] == len(usable_cores())
    assert facts["threads"] == 1
    assert facts["numpy"]
    assert datetime.datetime.fromisoformat(facts["date"]).tzinfo is not None


def test_what_is_not_known_is_absent_never_none_or_zero():
    facts = environment().to_dict()
    assert "threads" not in facts
    assert None not in facts.values()
    assert [] not in facts.values()


class RefusedError(Exception):
    value = 9


def _driverless():
    module = ModuleType("pynvml")
    module.NVMLError, module.NVML_ERROR_DRIVER_NOT_LOADED = RefusedError, 9

    def start():
        raise RefusedError

    module.nvmlInit = start
    return module


def test_each_of_the_three_absences_of_a_gpu_means_no_gpu(monkeypatch):
    reasons = []
    monkeypatch.setitem(sys.modules, "pynvml", None)  # the binding is not installed
    reasons.append(environment())
    monkeypatch.setitem(sys.modules, "pynvml", _driverless())  # the library is there, the driver is not
    reasons.append(environment())
    monkeypatch.delitem(sys.modules, "pynvml")
    real = importlib.import_module

    def without_library(name, *rest):  # the shared library cannot be loaded
        if name == "pynvml":
            raise OSError("libnvidia-ml.so.1: cannot open shared object file")
        return real(name, *rest)

    monkeypatch.setattr(importlib, "import_module", without_library)
    reasons.append(environment())
    assert all(found.gpus == () and "gpus" not in found.to_dict() for found in reasons)
    assert len({found.no_gpu_reason for found in reasons}) == 3


def test_another_machine_is_told_by_what_differs_and_only_by_what_matters():
    here = environment(threads=1).to_dict()
    assert differences(here, {**here, "date": "2001-01-01", "load": 99.0}) == []
    assert differences({**here, "cpu": "Other"}, here) == [
        f"cpu: Other there, {here.get('cpu', 'absent')} here"
    ]
    without = {name: value for name, value in here.items() if name != "threads"}
    assert differences(without, here) == ["threads: absent there, 1 here"]


def test_the_largest_cache_is_the_last_level(tmp_path):
    for index, size in enumerate(("32K", "1024K", "32M")):
        folder = tmp_path / f"cpu0/cache/index{index}"
        folder.mkdir(parents=True)
        (folder / "size").write_text(f"{size}\n")
    assert last_level_cache_bytes(tmp_path) == 32 * 2**20
    assert last_level_cache_bytes(tmp_path / "none") is None


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not move threads")
def test_pinning_moves_every_thread_and_puts_it_back():
    before, seen, go, done = usable_cores(), [], threading.Event(), threading.Event()

    def other():
        go.wait(10)
        seen.append(os.sched_getaffinity(0))
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with pinned(1) as cores:
        assert usable_cores() == list(cores) == before[:1]
        go.set()
        assert done.wait(10)
    thread.join()
    assert seen == [set(before[:1])]
    assert usable_cores() == before


def test_threads_are_set_explicitly_and_put_back():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    with pinned(1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("threads", [0, 10_000])
def test_more_threads_than_cores_are_refused(threads):
    with (
        pytest.raises(UsageError, match=f"threads must be between 1 and {len(usable_cores())}"),
        pinned(threads),
    ):
        pass


def test_the_environment_is_found_without_importing_torch():
    code = "import sys; from codesign.kernels.environment import environment; environment(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
