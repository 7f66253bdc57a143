"""Field fault B23: without NVIDIA's library every command that measures no GPU runs as it does with one.

The library can be absent in three ways, and catching one has left the next in other projects: the binding is not
installed; the binding is, but the shared library is not found; both are, but the driver is not loaded. A stub of the
binding stands first on the path of a process of its own and fails in each way, when it is imported or when it is started.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from command_line import Answer, all_commands, small_trace_file, workbench_process

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
_DESIGNS = """
base = "olmoe-1b-7b"
[axes]
experts = [32, 64]
[[machines]]
hardware = "h200-sxm"
[[points]]
name = "one"
batch = 1
context = 100
[objectives]
minimise = ["latency:one", "memory:one"]
"""
# What each command is asked, in a folder that holds trace.safetensors, book.txt, scenario.toml, study.toml, a replay `saved` and a sweep
# `swept`. A new command needs a line.
ASKED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("replay",): ("trace.safetensors", "--capacity", "50%"),
    ("report",): ("saved", "--out", "again.html"),
    ("init",): ("first.toml",),
    ("calibrate",): ("--out", "mine", "--operations", "copy", "--budget-s", "1"),
    ("sweep",): ("study.toml", "--out", "again", "--workers", "1"),
    ("explore",): ("designs.toml", "--out", "designs"),
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
    ("profile", "check"): ("--system", "a100_sxm", "--operations", "attention_prefill"),
    ("profile", "mixtures"): ("--system", "h200_sxm"),
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
    ("curve",): ("trace.safetensors",),
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
    (made / "designs.toml").write_text(_DESIGNS)
    assert workbench_process("init", "scenario.toml", cwd=made).code == 0
    saved = workbench_process("replay", "trace.safetensors", "--capacity", "50%", "--out", "saved", cwd=made)
    assert saved.code == 0, saved.err
    if ("sweep",) in COMMANDS:
        swept = workbench_process("sweep", "study.toml", "--out", "swept", "--workers", "1", cwd=made)
        assert swept.code == 0, swept.err
    return made


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
            marks = []
            if words in IMPORT_TORCH and way == "library not found at import":
                reason = "torch imports the binding and guards against ImportError only: a traceback"
                marks.append(pytest.mark.xfail(strict=True, reason=reason))
            cases.append(pytest.param(words, way, id=f"{' '.join(words)}, {way}", marks=marks))
    return cases


# All commands in one process, because starting one costs more than most of them; what imports torch comes last.
_ALL_IN_ONE = """
import contextlib, io, json, sys, traceback
from codesign.cli import main
answers = []
for words in json.load(sys.stdin):
    out, err, code = io.StringIO(), io.StringIO(), None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(words)
        except SystemExit as left:
            code = left.code
        except BaseException:
            traceback.print_exc()
    answers.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], dict[tuple[str, ...], Answer]]:
    """What every command answered where the library is absent in some way; a way is tried once."""

    @functools.cache
    def of(way: str) -> dict[tuple[str, ...], Answer]:
        here = tmp_path_factory.mktemp("here")  # holds the same, for commands that write
        for found in folder.iterdir():
            (here / found.name).symlink_to(found)
        order = sorted(COMMANDS, key=lambda words: words in IMPORT_TORCH)
        done = subprocess.run(
            [sys.executable, "-c", _ALL_IN_ONE], input=json.dumps([[*words, *ASKED[words]] for words in order]),
            env={**os.environ, **without(way, here)}, cwd=here, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        return {words: Answer(*one) for words, one in zip(order, told, strict=True)}

    return of


@pytest.mark.parametrize(("words", "way"), every_command_each_way())
def test_a_command_runs_as_ever_without_the_library(words: tuple[str, ...], way: str, answers: Any) -> None:
    code, out, err = answers(way)[words]
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
