"""The first thing a user types: quick, complete, and with an example for every command."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import codesign
import pytest
from command_line import all_commands, workbench, workbench_process

ROOT = Path(__file__).parents[2]


COMMANDS = all_commands()


def test_every_verb_of_the_workbench_is_a_command() -> None:
    assert {" ".join(words) for words in COMMANDS} == {
        "replay", "curve", "report", "init", "trace info", "trace convert", "trace synth", "trace capture",
        "model list", "model show", "hardware list", "hardware show",
        "sweep", "best", "pareto", "compare", "explore", "validate", "export",
        "calibrate", "profile list", "profile show", "profile check", "profile compare", "profile mixtures",
    }  # fmt: skip


def test_help_starts_in_well_under_half_a_second() -> None:
    def once() -> float:
        started = time.perf_counter()
        assert workbench_process("--help").code == 0
        return time.perf_counter() - started

    assert min(once() for _ in range(5)) < 0.5


def test_help_imports_no_heavy_library() -> None:
    program = (
        "import sys, codesign.cli as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'numpy', 'pandas', 'pyarrow', 'numba', 'simpy', 'plotly', 'torch', 'pydantic'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_every_command_has_help_and_ends_with_an_example(words: tuple[str, ...]) -> None:
    code, out, _ = workbench(*words, "--help")
    assert code == 0
    assert COMMANDS[words].help
    example = COMMANDS[words].epilog
    assert example.startswith(f"Example: workbench {' '.join(words)}")
    assert " ".join(out.split()).endswith(example), "the example is what a reader sees last"
    for parameter in COMMANDS[words].params:
        assert parameter.help, f"{parameter.name} has no help"


def test_the_groups_list_their_commands() -> None:
    out = workbench("--help").out
    assert all(word in out for word in ("replay", "curve", "report", "init", "trace", "model", "hardware"))
    assert all(word in workbench("trace", "--help").out for word in ("info", "convert", "synth", "capture"))
    assert workbench("trace", "-h").code == 0


def test_the_version_is_the_packages() -> None:
    assert workbench("--version").out == f"workbench {codesign.__version__}\n"


def test_the_file_itself_can_be_run() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "cli.py", "--version"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, f"workbench {codesign.__version__}\n")
