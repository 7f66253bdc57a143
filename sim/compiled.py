"""The one decorator for compiled code, and where its machine code is kept between runs.

numba does not notice that a *callee* in another file changed, so a stale loop could run silently. The cache
directory's name therefore carries a hash of every source file under `sim/` (and numba's version): an edit
anywhere below makes a new, empty directory.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numba

_KEPT_DIRECTORIES = 6  # enough for a few checkouts side by side; older ones are removed

_Function = TypeVar("_Function", bound=Callable[..., Any])


def source_hash() -> str:
    """Twelve hex digits that change when a file beside compiled code, this file or the version of numba changes."""
    digest = hashlib.sha256(numba.__version__.encode())
    root = Path(__file__).parent
    sources = {path: path.read_bytes() for path in sorted(root.rglob("*.py"))}
    folders = {
        path.parent
        for path, text in sources.items()
        if b"\n@compiled" in text or b"\n@called" in text or b"\n@inlined" in text
    }
    for path, text in sources.items():
        if path.parent in folders or path == Path(__file__):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(text)
    return digest.hexdigest()[:12]


def _cache_root() -> Path:
    asked = os.environ.get("NUMBA_CACHE_DIR")
    if asked:
        return Path(asked)
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "codesign-workbench"


def _prepare_cache_directory() -> Path:
    name = f"compiled-{source_hash()}"
    for root in (_cache_root(), Path(tempfile.gettempdir()) / f"codesign-workbench-{os.getuid()}"):
        directory = root / name
        try:
            directory.mkdir(parents=True, exist_ok=True)
            os.utime(directory)  # marks it as used, for the pruning below
            if os.access(directory, os.W_OK):
                _prune(root)
                return directory
        except OSError:
            continue
    return Path(tempfile.mkdtemp(prefix="codesign-compiled-"))


def _prune(root: Path) -> None:
    kept = sorted(root.glob("compiled-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in kept[_KEPT_DIRECTORIES:]:
        shutil.rmtree(old, ignore_errors=True)


CACHE_DIRECTORY = _prepare_cache_directory()
numba.config.CACHE_DIR = str(CACHE_DIRECTORY)


def compiled(function: _Function) -> _Function:
    """Compile to machine code at first call and keep it on disk. For functions over plain arrays only."""
    result: _Function = numba.njit(cache=True, _nrt=False)(function)
    return result


def called(function: _Function) -> _Function:
    """Like `compiled`, for functions that only compiled code calls: none of what Python would need is made."""
    result: _Function = numba.njit(cache=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)(
        function
    )
    return result


def inlined(function: _Function) -> _Function:
    """Like `called`, and made part of each caller: for small functions, whose many arrays are costly to hand over."""
    result: _Function = numba.njit(
        cache=True, forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True
    )(function)
    return result
