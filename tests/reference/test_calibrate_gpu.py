"""Calibration of a GPU: the whole path in Triton's interpreter with made-up times, and what is said where there is no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton exists for Linux only")

from codesign.errors import UsageError  # noqa: E402
from codesign.kernels import devices, telemetry  # noqa: E402
from codesign.kernels.probe import GpuProbe  # noqa: E402
from codesign.kernels.subjects import Bench  # noqa: E402
from codesign.kernels.timing import CpuStopwatch  # noqa: E402
from codesign.sim.measurement import load_measurements  # noqa: E402
from codesign.sim.ops import Copy, Gemm  # noqa: E402
from codesign.sim.profile import load_profile  # noqa: E402
from codesign.workbench.calibration_grids_gpu import GPU_GRIDS  # noqa: E402
from codesign.workbench.calibration_plan import Limits, plan  # noqa: E402
from codesign.workbench.calibration_points import calibration_points  # noqa: E402
from command_line import workbench  # noqa: E402

SCRIPT = Path(__file__).parents[1] / "helpers" / "interpreted_gpu.py"
A_GPU = SimpleNamespace(index=0, name="a GPU", driver="1")


def interpreted(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), *more], capture_output=True, text=True, timeout=600, check=False,
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def visits(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "journal.jsonl").read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """A run interrupted after 30 visits and taken up again, in which mixtures of 5 tokens do not fit."""
    folder = tmp_path_factory.mktemp("interpreted")
    stopped = interpreted(folder, "moe", "30")
    assert stopped.returncode == 1
    assert "interrupted after" in stopped.stderr, stopped.stderr
    before = visits(folder)
    done = interpreted(folder, "moe")
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout.splitlines()[-1]), before


def test_a_run_on_a_gpu_s_kernels_is_resumed_and_loses_nothing(resumed: Any) -> None:
    folder, told, before = resumed
    after = visits(folder)
    assert after[: len(before)] == before
    assert told["unmeasured"] == 0
    measured = [(one["key"], one["round"]) for one in after if "samples_s" in one]
    assert {key for key, _ in measured} == {key for key, turn in measured if turn == 1}


def test_each_operation_is_measured_by_the_gpu_s_kernel_and_fitted(resumed: Any) -> None:
    folder, told, _ = resumed
    assert set(told["operations"]) == set(GPU_GRIDS)
    kernels = {name: set(load_measurements(folder / name).rows["kernel"]) for name in GPU_GRIDS}
    assert kernels == {
        "gemm": {"gemm"}, "moe": {"routed_experts"}, "moe_layer": {"fused_moe", "latent_moe"},
        "attention_decode": {"decode_attention"}, "scan": {"mamba2_scan"}, "copy": {"copy", "gather_experts"},
    }  # fmt: skip
    profile = load_profile(folder / "profile.toml")
    assert profile.system == "no GPU: Triton's interpreter"
    assert profile.query(Gemm(4, 32, 32), kernel="gemm").seconds > 0
    rows = load_measurements(folder / "copy").rows
    ways = set(zip(rows["source"], rows["target"], rows["pinned"], strict=True))
    assert ways == {
        ("device", "device", True),
        *((a, b, pinned) for a, b in (("host", "device"), ("device", "host")) for pinned in (True, False)),
    }
    assert [one.operation for one in calibration_points(folder).operations]  # the report's reader takes skipped lines


def test_what_does_not_fit_is_skipped_once_with_its_reason(resumed: Any) -> None:
    folder, told, _ = resumed
    skips = [one for one in visits(folder) if "skipped" in one]
    assert {one["key"] for one in skips} == set(told["skipped"])
    assert len(skips) == len(told["skipped"]) == 3
    assert set(told["skipped"].values()) == {
        "does not fit into the device's memory: CUDA out of memory. Tried to allocate 9 GiB"
    }
    assert any(line.startswith("skipped: moe tokens=5 ") for line in told["lines"])
    assert told["operations"]["moe"]["rows"] == 3


def test_the_driver_s_word_and_the_device_stand_beside_the_measurements(resumed: Any) -> None:
    folder, told, _ = resumed
    assert all(one["telemetry"] == {"sm_clock_hz": 1e9} for one in visits(folder) if "samples_s" in one)
    assert told["environment"]["sm_clock_hz_min"] == told["environment"]["sm_clock_hz_max"] == 1e9
    header = json.loads((folder / "journal.jsonl").read_text().splitlines()[0])
    assert header["device"] == "cuda:0"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (torch.AcceleratorError("CUDA error: an illegal memory access\nCompile with ..."), "CUDA error: an illegal memory access"),
        (RuntimeError("Triton Error [CUDA]: misaligned address"), "Triton Error [CUDA]: misaligned address"),
        (RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling ..."), "CUBLAS_STATUS_EXECUTION_FAILED when calling ..."),
        (RuntimeError("shapes do not match"), None),
        (ValueError("CUDA is no shape"), None),
    ],
)  # fmt: skip
def test_a_fault_of_the_device_is_told_from_one_of_ours(error: Exception, reason: str | None) -> None:
    assert devices.CudaDevice(0).failure(error) == reason


def test_a_gpu_that_fails_ends_the_calibration_with_one_line_and_the_same_command_goes_on(tmp_path: Path) -> None:
    failed = interpreted(tmp_path, "gemm", "fail:5")
    assert failed.returncode == 1
    kept = visits(tmp_path)
    assert failed.stderr.strip().endswith(
        f"CUDA error: unspecified launch failure; after {len(kept)} visits; they are kept in {tmp_path / 'journal.jsonl'}, "
        "the same command goes on"
    ), failed.stderr
    assert len(kept) >= 5
    done = interpreted(tmp_path, "gemm")
    assert done.returncode == 0, done.stderr
    assert visits(tmp_path)[: len(kept)] == kept


def test_only_copies_of_pageable_memory_are_timed_by_the_host() -> None:
    device, host = CpuStopwatch(name="device"), CpuStopwatch(name="host")
    bench = Bench(SimpleNamespace(device="cuda:0"), 0, None, device, host)
    assert bench.stopwatch(Copy(8, "host", "device", pinned=False)) is host
    assert bench.stopwatch(Copy(8, "host", "device")) is device
    assert bench.stopwatch(Copy(8, "device", "device", pinned=False)) is device
    assert bench.stopwatch(Gemm(1, 2, 3)) is device


def test_a_watch_that_waits_does_so_before_each_reading_of_the_clock() -> None:
    log: list[str] = []

    def clock() -> float:
        log.append("clock")
        return 0.0

    CpuStopwatch(clock=clock, known_step_s=1.0, wait=lambda: log.append("wait")).lap([lambda: log.append("call")], 0, 2)
    assert log == ["wait", "clock", "call", "call", "wait", "clock"]


@pytest.mark.parametrize("suite", ["quick", "full"])
def test_every_operation_of_a_gpu_s_plan_has_rows_to_fit_and_rows_held_out(suite: str) -> None:
    cases = plan(suite, Limits(100e12, 1e12, 0.2, 2**34), grids=GPU_GRIDS)
    assert len({case.key for case in cases}) == len(cases)
    for name in GPU_GRIDS:
        held = [case.held_out for case in cases if case.name == name]
        assert 0 < sum(held) < len(held), name


@pytest.mark.parametrize(
    "reason",
    [
        "the module pynvml is not installed (package nvidia-ml-py)",
        "the NVIDIA driver is not loaded",
        "the NVIDIA driver sees no device",
    ],
)
def test_without_a_gpu_the_command_says_what_it_looked_for_and_what_can_be_done(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "probe_gpus", lambda: GpuProbe((), reason))
    answer = workbench("calibrate", "--device", "cuda:0", "--out", tmp_path / "mine")
    assert answer.code == 2
    flat = " ".join(answer.err.split())
    assert f"no GPU: {reason}" in flat
    assert "looked for NVIDIA's management library" in flat
    assert "--device cpu" in flat
    assert "gpu_lane.py" in flat
    assert not (tmp_path / "mine").exists()


def test_a_torch_that_cannot_use_the_gpu_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "probe_gpus", lambda: GpuProbe((A_GPU,), None))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    answer = workbench("calibrate", "--device", "cuda", "--out", tmp_path)
    assert answer.code == 2
    assert "install torch's CUDA build" in " ".join(answer.err.split())


@pytest.mark.parametrize(
    ("count", "told"), [(1, "there is 1 CUDA device, cuda:0"), (2, "there are 2 CUDA devices, cuda:0 to cuda:1")]
)
def test_a_number_beyond_the_last_device_names_how_many_there_are(
    count: int, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "probe_gpus", lambda: GpuProbe((A_GPU,), None))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    answer = workbench("calibrate", "--device", "cuda:7", "--out", tmp_path)
    assert answer.code == 2
    assert told in " ".join(answer.err.split())


@pytest.mark.parametrize(
    ("name", "threads", "message"),
    [("gpu", None, "known are cpu, cuda and cuda:N"), ("cuda:x", None, "cuda:N"), ("cuda:0", 2, "threads are the proc")],
)
def test_other_names_and_threads_of_a_gpu_are_refused(name: str, threads: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        devices.open_device(name, threads=threads)


@pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="kernels are compiled here")
def test_the_interpreter_is_never_timed_in_the_name_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "probe_gpus", lambda: GpuProbe((A_GPU,), None))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UsageError, match="TRITON_INTERPRET is set"):
        devices.open_device("cuda:0")


def test_an_unknown_gpu_has_no_telemetry() -> None:
    assert telemetry.gpu_sample("0-0") is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_products_and_copies_are_measured_below_its_roof(tmp_path: Path) -> None:
    answer = workbench(
        "calibrate", "--device", "cuda:0", "--operations", "gemm,copy", "--budget-s", "60", "--out", tmp_path, "--json"
    )  # fmt: skip
    assert answer.code == 0, answer.err
    told = json.loads(answer.out)
    assert told["environment"]["device"] == "cuda:0"
    assert {one["operation"] for one in told["operations"]} == {"gemm", "copy"}
    assert all(one["roof_share_median"] < 1.1 for one in told["operations"])
