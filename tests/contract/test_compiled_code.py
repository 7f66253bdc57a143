"""Compiled code is found again on disk, and never stale: fresh processes over a copy of the package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import codesign
import pytest

COUNT = """
import numpy as np
from codesign.sim.cache.access_loop import count_misses
from codesign.sim.cache.registry import policy
ids = np.arange(200, dtype=np.int32) % 7
print(count_misses(ids, 7, 7, policy("fifo")))
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    home = Path(codesign.__file__).parent
    target = tmp_path / "site" / "codesign"
    for part in ("__init__.py", "errors.py", "files.py"):
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(home / part, target / part)
    for floor in ("sim", "traces"):
        shutil.copytree(home / floor, target / floor, ignore=shutil.ignore_patterns("__pycache__", "data"))
    return target


def misses(copy: Path, cache: Path) -> int:
    environment = {**os.environ, "PYTHONPATH": str(copy.parent), "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", COUNT], env=environment, capture_output=True, text=True, check=True, cwd=copy.parent
    )
    return int(done.stdout)


def machine_code(cache: Path) -> dict[Path, int]:
    """Every file of compiled code, and when it was written."""
    return {path: path.stat().st_mtime_ns for path in cache.rglob("*.nbc")}


def test_a_second_process_compiles_nothing_and_an_edited_policy_is_not_run_stale(copy: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert misses(copy, cache) == 7
    written = machine_code(cache)
    assert written
    assert misses(copy, cache) == 7
    assert machine_code(cache) == written
    switch = copy / "sim" / "cache" / "switch.py"
    text = switch.read_text(encoding="utf-8")
    edited = text.replace("return code not in (STATIC, NEVER)", "return code not in (STATIC, NEVER, FIFO)")
    assert edited != text
    switch.write_text(edited, encoding="utf-8")
    assert misses(copy, cache) == 200  # a cache that admits nothing misses always
    assert set(machine_code(cache)) > set(written)
