"""`import codesign`: quick, typed, and complete."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import codesign
import pytest

ROOT = Path(__file__).parents[2]


def test_importing_it_loads_none_of_the_libraries() -> None:
    program = (
        "import sys, codesign\n"
        "heavy = {'numpy', 'pandas', 'numba', 'simpy', 'plotly', 'typer', 'rich', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("floor", "must_not"),
    [
        ("codesign.sim.engines.run", "torch"),
        ("codesign.traces", "torch"),
        ("codesign.reports.page", "simpy"),
        ("codesign.workbench.replay", "torch"),
        ("codesign.workbench.replay", "plotly"),
    ],
)
def test_a_floor_starts_without_what_belongs_elsewhere(floor: str, must_not: str) -> None:
    program = f"import sys, {floor}; sys.exit({must_not!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("name", [name for name in codesign.__all__ if name != "capture"])
def test_every_name_it_offers_is_there(name: str) -> None:
    assert getattr(codesign, name) is not None
    assert name in dir(codesign)


def test_capture_is_there_where_torch_is() -> None:
    pytest.importorskip("torch", reason="the extra `capture` is not installed")
    assert callable(codesign.capture)


def test_what_type_checkers_see_is_what_is_offered() -> None:
    tree = ast.parse((ROOT / "__init__.py").read_text(encoding="utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    typed = {name.name for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert typed == set(codesign.__all__) - {"__version__"}
    assert typed == set(codesign._HOME)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'replays'"):
        _ = codesign.replays


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == codesign.__version__


def test_every_direct_dependency_is_pinned_for_make() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pins = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
        if "==" in line and not line.startswith("#")
    }
    extras = [entry for extra in project["optional-dependencies"].values() for entry in extra]
    wanted = {
        entry.split(";")[0].split(">")[0].strip().lower().replace("_", "-")
        for entry in (*project["dependencies"], *extras)
    }
    assert wanted - pins <= {"triton"}, "triton is left to torch"
