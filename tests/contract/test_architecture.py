"""The house: a floor imports only floors below it, and each heavy library has one place."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
FLOORS = {"traces": 1, "sim": 2, "kernels": 3, "workbench": 4, "reports": 5, "commands": 6, "cli": 7}
GROUND = {"errors", "files"}  # they import nothing of ours and everyone may import them
ONLY_PLACE = {  # library: where it may be imported (a folder, or a file)
    "torch": ("kernels/", "traces/capture.py", "traces/readers/sglang.py"),
    "triton": ("kernels/",),
    "transformers": ("traces/capture.py", "kernels/runtime/hf.py"),
    "pynvml": ("kernels/",),
    "numba": ("sim/", "kernels/"),
    "simpy": ("sim/",),
    "safetensors": ("traces/",),
    "dask": ("workbench/",),
    "plotly": ("reports/",),
    "jinja2": ("reports/",),
    "typer": ("cli.py", "commands/"),
    "rich": ("commands/",),
    "click": (),  # Typer carries its own; errors of the public one are not recognised
}
LAZY_ONLY = {"torch": "traces/", "transformers": "traces/"}  # there, inside the function that needs it


class Import(NamedTuple):
    file: str
    line: int
    module: str
    """Absolute: a library's name, or `codesign.…`."""
    is_relative: bool
    at_top: bool
    """Runs when the file is imported (under TYPE_CHECKING it does not)."""


def product_files() -> list[Path]:
    folders = [folder for name in FLOORS if (folder := ROOT / name).is_dir()]
    return sorted([*ROOT.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))])


def imports_of(path: Path) -> Iterator[Import]:
    file = path.relative_to(ROOT).as_posix()
    package = ("codesign", *path.relative_to(ROOT).parts[:-1])

    def walk(node: ast.AST, at_top: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                for name in child.names:
                    yield Import(file, child.lineno, name.name, False, at_top)
            elif isinstance(child, ast.ImportFrom):
                base = package[: len(package) - child.level + 1] if child.level else ()
                module = ".".join((*base, *((child.module,) if child.module else ())))
                yield Import(file, child.lineno, module, child.level > 0, at_top)
                for name in child.names:  # `from . import switch` imports a module
                    yield Import(file, child.lineno, f"{module}.{name.name}", child.level > 0, at_top)
            else:
                lazy = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
                for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
                yield from walk(child, at_top and not lazy and not for_types)

    yield from walk(ast.parse(path.read_text(encoding="utf-8")), True)


IMPORTS = [found for path in product_files() for found in imports_of(path)]


def test_the_product_is_found_at_all() -> None:
    files = {found.file for found in IMPORTS}
    assert {"cli.py", "reports/page.py", "workbench/replay.py", "sim/compiled.py", "traces/native.py"} <= files
    assert len(IMPORTS) > 300


def test_a_floor_imports_only_floors_below_it() -> None:
    wrong = []
    for found in IMPORTS:
        here = found.file.split("/")[0].removesuffix(".py")
        there = found.module.split(".")[1] if found.module.startswith("codesign.") else None
        if here in FLOORS and there in FLOORS and FLOORS[there] > FLOORS[here]:
            wrong.append(f"{found.file}:{found.line} imports {found.module}")
        if here in GROUND and there is not None and there not in GROUND:
            wrong.append(f"{found.file}:{found.line} is ground and imports {found.module}")
    assert not wrong


def test_ours_is_imported_relatively() -> None:
    """The floors' names alone (`import kernels`) are other people's packages."""
    ours = {"codesign", *FLOORS, *GROUND}
    wrong = [
        f"{found.file}:{found.line} imports {found.module}"
        for found in IMPORTS
        if not found.is_relative and found.module.split(".")[0] in ours
    ]
    assert not wrong


@pytest.mark.parametrize("library", ONLY_PLACE)
def test_a_library_is_imported_only_in_its_place(library: str) -> None:
    wrong = [
        f"{found.file}:{found.line}"
        for found in IMPORTS
        if found.module.split(".")[0] == library and not found.file.startswith(ONLY_PLACE[library])
    ]
    assert not wrong


@pytest.mark.parametrize("library", LAZY_ONLY)
def test_traces_import_torch_only_when_a_function_needs_it(library: str) -> None:
    wrong = [
        f"{found.file}:{found.line}"
        for found in IMPORTS
        if found.module.split(".")[0] == library and found.file.startswith(LAZY_ONLY[library]) and found.at_top
    ]
    assert not wrong


def test_every_package_is_listed_for_the_wheel() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {path.parent for path in product_files() if path.name == "__init__.py"}
    found = {".".join(("codesign", *folder.relative_to(ROOT).parts)) for folder in folders}
    assert set(listed) == found
    without = {path.parent for path in product_files()} - folders
    assert not without, "folders with code but no __init__.py"


def test_no_file_grows_past_400_lines() -> None:
    tests = (ROOT / "tests").rglob("*.py")
    long = {
        path.relative_to(ROOT).as_posix(): lines
        for path in (*product_files(), *tests)
        if (lines := len(path.read_text(encoding="utf-8").splitlines())) > 400
    }
    assert not long


def test_test_files_have_names_of_their_own_and_the_root_holds_no_conftest() -> None:
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(names) == sorted(set(names))
    assert not (ROOT / "conftest.py").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))
