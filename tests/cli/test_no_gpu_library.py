"""Field fault B23: without NVIDIA's library every command that measures no GPU runs as it does with one.

The library can be absent in three ways, and catching one has left the next in other projects: the binding is not
installed; the binding is, but the shared library is not found; both are, but the driver is not loaded. A stub of the
binding stands first on the path of a process of its own and fails in each way, when it is imported or when it is started.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from command_line import all_commands, small_trace_file, workbench_process

BUNDLED = Path(__file__).parents[2] / "traces/data/small-olmoe-stdlib.safetensors"
_NVML = """
class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"NVML error {value}")
        self.value = value
NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_DRIVER_NOT_LOADED = 12, 9
def nvmlShutdown():
    raise NVMLError(1)  # "uninitialized": nobody may shut down what never started
"""
WAYS = {
    "not installed": 'raise ModuleNotFoundError("No module named \'pynvml\'", name="pynvml")\n',
    "library not found at import": 'raise OSError("libnvidia-ml.so.1: cannot open shared object file")\n',
    "library not found at start": _NVML
    + "def nvmlInit():\n    raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND)\n",
    "driver not loaded": _NVML + "def nvmlInit():\n    raise NVMLError(NVML_ERROR_DRIVER_NOT_LOADED)\n",
}
_STUDY = f"""
name = "small"
about = "one policy at one capacity"
[traces.stdlib]
path = "{BUNDLED}"
model = "small-olmoe-stdlib"
[axes]
hardware = "cpu-2core"
policy = ["lru"]
capacity = ["50%"]
"""
# What each command is asked, in a folder that holds trace.safetensors, book.txt, scenario.toml, study.toml, a replay `saved` and a sweep
# `swept`. A new command needs a line.
ASKED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("replay",): ("trace.safetensors", "--capacity", "50%"),
    ("report",): ("saved", "--out", "again.html"),
    ("init",): ("first.toml",),
    ("calibrate",): ("--out", "mine", "--operations", "copy", "--budget-s", "1"),
    ("sweep",): ("study.toml", "--out", "again", "--workers", "1"),
    ("compare",): ("swept", "swept"),
    ("best",): ("swept",),
    ("pareto",): ("swept", "--x", "capacity_bytes", "--y", "tpot"),
    ("export",): (
        "scenario.toml",
        "--to",
        "llama.cpp",
        "--policy",
        "lru",
        "--prefetch",
        "none",
        "--capacity",
        "25%",
    ),
    ("validate",): (str(BUNDLED), "--model", "small-olmoe-stdlib", "--tokens", "16"),
    ("profile", "list"): (),
    ("profile", "show"): ("h200-sxm-sglang",),
    ("profile", "check"): ("--system", "l40s", "--operations", "attention_decode"),
    ("profile", "compare"): ("h200-sxm-sglang", "b200-sglang"),
    ("trace", "info"): ("trace.safetensors",),
    ("trace", "convert"): ("trace.safetensors", "copy.safetensors"),
    ("trace", "synth"): (
        "new.safetensors",
        "--layers",
        "2",
        "--experts",
        "8",
        "--top-k",
        "2",
        "--tokens",
        "20",
    ),
    ("trace", "capture"): ("no-such-model", "book.txt", "--out", "captured.safetensors"),
    ("model", "list"): (),
    ("model", "show"): ("olmoe-1b-7b",),
    ("hardware", "list"): (),
    ("hardware", "show"): ("h200-sxm",),
}
COMMANDS = [words for words in all_commands() if words in ASKED]
IMPORT_TORCH = {("trace", "capture"), ("calibrate",), ("validate",)}
REFUSED = {("trace", "capture")}
"""Asked for something that is not there, since what they need is no part of a test: refused, and not because of a GPU."""
NO_GPU = "no GPU"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything the commands read, made while the real binding is in place."""
    made = tmp_path_factory.mktemp("no-gpu")
    small_trace_file(made)
    (made / "book.txt").write_text("a text to take a prompt from\n" * 50)
    (made / "study.toml").write_text(_STUDY)
    assert workbench_process("init", "scenario.toml", cwd=made).code == 0
    saved = workbench_process("replay", "trace.safetensors", "--capacity", "50%", "--out", "saved", cwd=made)
    assert saved.code == 0, saved.err
    if ("sweep",) in COMMANDS:
        swept = workbench_process("sweep", "study.toml", "--out", "swept", "--workers", "1", cwd=made)
        assert swept.code == 0, swept.err
    return made


@pytest.fixture
def here(folder: Path, tmp_path: Path) -> Path:
    """A folder of a test's own that holds the same, for commands that write."""
    for found in folder.iterdir():
        (tmp_path / found.name).symlink_to(found)
    return tmp_path


def without(way: str, folder: Path) -> dict[str, str]:
    """The environment of a process for which the binding fails in this way."""
    stub = folder / f"stub {way}"
    stub.mkdir(exist_ok=True)
    (stub / "pynvml.py").write_text(WAYS[way])
    return {"PYTHONPATH": str(stub), "CUDA_VISIBLE_DEVICES": ""}


def test_every_command_has_a_line_here() -> None:
    assert set(COMMANDS) == set(all_commands())


@pytest.mark.parametrize("way", WAYS)
def test_the_stub_is_what_the_probe_meets_and_it_says_why_in_one_line(way: str, folder: Path) -> None:
    """Else every test below would pass with the real binding, or with none."""
    program = (
        "import codesign.kernels.probe as p, sys; print(*p.probe_gpus().lines(), sep='\\n'); p.require_gpus()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **without(way, folder)}, capture_output=True, text=True,
        check=False, cwd=folder,
    )  # fmt: skip
    assert done.stdout.startswith(NO_GPU)
    assert len(done.stdout.splitlines()) == 1
    expected = {"not installed": "not installed", "driver not loaded": "driver is not loaded"}.get(
        way, "librar"
    )
    assert expected in done.stdout
    assert "RunError: a GPU is needed, but there is none" in done.stderr


def every_command_each_way() -> list[ParameterSet]:
    cases = []
    for words in COMMANDS:
        for way in WAYS:
            marks = [pytest.mark.slow] if words in IMPORT_TORCH else []
            if marks and way == "library not found at import":
                reason = "torch imports the binding and guards against ImportError only: a traceback"
                marks.append(pytest.mark.xfail(strict=True, reason=reason))
            cases.append(pytest.param(words, way, id=f"{' '.join(words)}, {way}", marks=marks))
    return cases


@pytest.mark.parametrize(("words", "way"), every_command_each_way())
def test_a_command_runs_as_ever_without_the_library(words: tuple[str, ...], way: str, here: Path) -> None:
    code, out, err = workbench_process(*words, *ASKED[words], cwd=here, environment=without(way, here))
    assert "Traceback" not in err
    assert "nvml" not in (out + err).lower()
    if words in REFUSED:
        assert code == 2, err
        assert "no-such-model" in err
    else:
        assert code == 0, err
        assert out.strip()
        assert sum(NO_GPU in line for line in (out + err).splitlines()) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_help_is_there_without_the_library(way: str, folder: Path) -> None:
    code, out, err = workbench_process("--help", environment=without(way, folder))
    assert code == 0, err
    assert "replay" in out


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_is_there_without_the_library(words: tuple[str, ...], folder: Path) -> None:
    """One way is enough here: help imports nothing, and the first of the three is the one met at an import."""
    way = "library not found at import"
    code, out, err = workbench_process(*words, "--help", environment=without(way, folder))
    assert code == 0, err
    assert "Usage" in out
