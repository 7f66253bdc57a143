"""Writing files whole or not at all, and naming what was read by its hash."""

from __future__ import annotations

import hashlib
import os
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import InputFileError, RunError


@contextmanager
def written_whole(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it onto `path` on success, remove it on any failure.

    A reader never sees half a file, and an old file survives a failed write. Raises `RunError` where the
    disk or the permissions refuse.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:100]}.", suffix=".part", dir=target.parent)
        os.close(handle)
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}") from error
    part = Path(name)
    try:
        yield part
        umask = os.umask(0)
        os.umask(umask)
        part.chmod(0o666 & ~umask)  # mkstemp makes private files; results are for sharing
        part.replace(target)
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)


def existing_file(path: str | Path) -> Path:
    """`path` as a `Path`, or `InputFileError` when it is missing, a directory, empty or unreadable."""
    found = Path(path)
    if not found.exists():
        raise InputFileError(found, "no such file")
    if not found.is_file():
        raise InputFileError(found, "is a directory, expected a file")
    if not os.access(found, os.R_OK):
        raise InputFileError(found, "no permission to read it")
    if found.stat().st_size == 0:
        raise InputFileError(found, "the file is empty")
    return found


def sha256_of(path: str | Path) -> str:
    """SHA-256 of a file's bytes in hex; streams, so large traces cost no memory."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def read_toml(path: str | Path) -> dict[str, Any]:
    """A TOML file's table. Raises `InputFileError` for one that is missing, no UTF-8 text (a BOM is fine), or no TOML."""
    source = existing_file(path)
    try:
        return tomllib.loads(source.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputFileError(source, f"is not UTF-8 text: {error}") from error
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputFileError(source, f"is not TOML: {error}") from error
