"""The prepared lane for a GPU, on tiny sizes; that every kernel compiles for one; what is said where a library is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="Triton exists for Linux only")

ROOT = Path(__file__).parents[2]
LANE = ROOT / "benchmarks" / "gpu_lane.py"
# What a thread block may have on compute capability 8.0 (CUDA C++ programming guide, table of compute capabilities)
SHARED_BYTES = 163 * 1024


def python(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)], capture_output=True, text=True, timeout=600, check=False,
        env={**inherited, "OMP_NUM_THREADS": "1", **environment},
    )  # fmt: skip


def test_the_lane_checks_every_kernel_and_takes_no_times_in_the_interpreter(tmp_path: Path) -> None:
    done = python(LANE, "--tiny", "--out", tmp_path)
    assert done.returncode == 0, done.stderr
    *lines, last = done.stdout.splitlines()
    figures = json.loads(last)["figures"]
    assert json.loads(last)["name"] == "gpu_lane"
    assert figures["all_agree"]
    assert figures["left_out"] == 0
    assert sum(" agrees " in line for line in lines) == 7
    assert "µs" not in done.stdout
    assert not list(tmp_path.iterdir())


def test_the_lane_says_what_it_left_out_when_time_ran_out(tmp_path: Path) -> None:
    done = python(LANE, "--tiny", "--budget-s", "-1", "--out", tmp_path)
    assert "7 cases were left out" in done.stdout
    assert json.loads(done.stdout.splitlines()[-1])["figures"]["left_out"] == 7


def test_without_a_gpu_the_lane_says_so_and_what_can_be_done() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = python(LANE)
    assert done.returncode == 1
    assert done.stderr.startswith("no GPU: ")
    assert "--tiny" in done.stderr


def test_what_the_lane_measured_is_saved_as_measurements_of_the_operation(tmp_path: Path) -> None:
    script = f"""
import importlib.util, sys
spec = importlib.util.spec_from_file_location("gpu_lane", {str(LANE)!r})
lane = sys.modules["gpu_lane"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(lane)
from codesign.kernels.timing import Timing
import pathlib
timing = Timing((2e-6, 3e-6, 4e-6), 1.0, 3, 1, "cuda_event", "tight")
for kernel, sizes in lane.TINY.items():
    case = lane.run_case(kernel, sizes[0], "cpu", 16.0, False)
    lane.save(kernel, [case._replace(timing=timing)] * 2, pathlib.Path({str(tmp_path)!r}))
"""
    done = python("-c", script, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    from codesign.sim.measurement import load_measurements

    loaded = {path.stem: load_measurements(path) for path in tmp_path.glob("*.toml")}
    assert {kernel: found.operation for kernel, found in loaded.items()} == {
        "gather_experts": "copy", "decode_attention": "attention_decode", "tree_attention": "attention_prefill",
        "block_attention": "attention_prefill", "mamba2_scan": "scan", "fused_moe": "moe_layer", "latent_moe": "moe_layer",
    }  # fmt: skip
    for kernel, found in loaded.items():
        assert list(found.seconds) == [3e-6, 3e-6]
        assert set(found.rows["kernel"]) == {kernel}
        ((_, operation),) = found.operations()
        assert (operation.bytes > 0).all()
    assert set(loaded["latent_moe"].rows["latent"]) == {16}


@pytest.mark.slow
@pytest.mark.parametrize("architecture", [80, 90])
def test_every_kernel_compiles_for_a_gpu_that_is_not_here(architecture: int) -> None:
    """The interpreter runs what the compiler refuses, so compile too: with the tiles of real sizes, in bf16."""
    done = python(ROOT / "tests" / "helpers" / "compile_for_cuda.py", str(architecture))
    assert done.returncode == 0, done.stderr
    shared_bytes = json.loads(done.stdout.splitlines()[-1])
    assert set(shared_bytes) == {
        "_linear", "_top_k", "_count", "_place", "_into_experts", "_out_of_experts", "_combine", "_gather", "_decode",
        "_tree", "_merge", "_block", "_decay_sums", "_chunk_states", "_pass_states", "_outputs",
    }  # fmt: skip
    assert max(shared_bytes.values()) <= SHARED_BYTES


@pytest.mark.parametrize(
    ("missing", "home", "advice"),
    [
        ("torch", "reference", "the kernels need torch: pip install"),
        ("torch", "gpu", "the GPU kernels need torch: pip install"),
        ("triton", "gpu", "the GPU kernels need triton: pip install"),
    ],
)
def test_a_missing_library_is_named_with_what_to_install(missing: str, home: str, advice: str) -> None:
    script = f"""
import sys
sys.modules[{missing!r}] = None
import codesign
try:
    import codesign.kernels.{home}
except codesign.UsageError as error:
    print(error)
"""
    done = python("-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(advice)


def test_the_package_starts_without_importing_torch() -> None:
    assert (
        python("-c", "import codesign, codesign.kernels, sys; sys.exit('torch' in sys.modules)").returncode
        == 0
    )


def test_without_device_and_interpreter_a_kernel_says_how_to_have_either() -> None:
    script = """
import torch
from codesign.errors import UsageError
from codesign.kernels.gpu.gather_experts import gather_experts
try:
    gather_experts(torch.ones(2, 3), torch.tensor([1]))
except UsageError as error:
    print(error)
"""
    done = python("-c", script)
    assert "cache_SE is on cpu; Triton kernels need a CUDA device" in done.stdout
    assert "TRITON_INTERPRET=1" in done.stdout
