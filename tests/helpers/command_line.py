"""Run the command line as a user would, in this process (quick) or in one of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from codesign.cli import app, main
from codesign.traces import ExpertTrace, save_trace


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def workbench(*arguments: object) -> Answer:
    """`workbench ARGUMENTS` in this process. An exception that is not SystemExit is a traceback a user would see."""
    out, err = io.StringIO(), io.StringIO()
    code: object = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
        except SystemExit as left:
            code = left.code
    assert isinstance(code, int), f"left with {code!r}"
    return Answer(code, out.getvalue(), err.getvalue())


def workbench_process(
    *arguments: object, cwd: Path | None = None, environment: dict[str, str] | None = None
) -> Answer:
    """`workbench ARGUMENTS` as a process of its own, through the installed script."""
    script = Path(sys.executable).parent / "workbench"
    done = subprocess.run(
        [script, *(str(argument) for argument in arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **(environment or {})},
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


def all_commands(group: Any = None, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """The words after `workbench` → the command, of every command (groups are left out)."""
    found: dict[tuple[str, ...], Any] = {}
    for name, command in (group or typer.main.get_command(app)).commands.items():
        if hasattr(command, "commands"):
            found |= all_commands(command, (*path, name))
        else:
            found[(*path, name)] = command
    return found


def small_trace() -> ExpertTrace:
    """Two sequences of 40 tokens through 3 layers of 16 experts, top-2, the guesses of the next layer included."""
    rng = np.random.default_rng(5)
    experts = np.argsort(rng.random((80, 3, 16)), axis=2)[:, :, :2].astype(np.int8)
    guesses = np.full((80, 3, 1, 2), -1, np.int8)
    guesses[:, :2, 0] = experts[:, 1:]
    return ExpertTrace(
        experts_TLK=experts,
        layer_ids_L=np.array([1, 2, 3], np.int32),
        num_experts=16,
        sequence_start_S=np.array([0, 40]),
        model="random",
        source="drawn for a test",
        licence="CC0-1.0",
        synthetic=True,
        is_prefill_T=np.arange(80) % 40 < 8,
        predicted_TLHM=guesses,
    )


def small_trace_file(folder: Path, name: str = "trace.safetensors") -> Path:
    path = folder / name
    save_trace(small_trace(), path)
    return path
