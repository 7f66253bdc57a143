"""Experts in a file, read past the page cache so that it does not pass memory's speed off as the disk's."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Any

from ...errors import RunError
from ..cpu.storage_read import MIB
from .weights import Weights

_PREFIX = "codesign-experts-"
_WRITE_EXPERTS = 8  # rows joined per write


class FileTier:
    """One file of all experts' rows in `folder`, removed when the tier closes; read with `O_DIRECT` in blocks of 1 MiB.

    Leftovers of runs that were killed outright are removed by the next run in the same folder.
    """

    name = "file"

    def __init__(self, weights: Weights, folder: str | Path | None = None, *, block_bytes: int = MIB) -> None:
        """Raises `RunError` where the disk is full, or the folder takes no files or no reads past the page cache."""
        self.row_bytes, self._experts, self._block_bytes = (
            weights.shape.row_bytes,
            weights.experts_in_all,
            block_bytes,
        )
        self._handle = -1
        home = Path(folder or tempfile.gettempdir())
        remove_leftovers(home)
        try:
            home.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=home)
        except OSError as error:
            raise RunError(f"cannot put experts into {home}: {error.strerror or error}") from error
        self.path = Path(name)
        try:
            self._write(handle, weights)
            self._handle = self._open()
        except BaseException:
            self.close()
            raise

    def _write(self, handle: int, weights: Weights) -> None:
        total = self._experts * self.row_bytes
        try:
            with os.fdopen(handle, "wb", buffering=0) as stream:
                os.posix_fallocate(stream.fileno(), 0, total)  # a full disk says so now, not in the middle
                for first in range(0, self._experts, _WRITE_EXPERTS):
                    rows = range(first, min(first + _WRITE_EXPERTS, self._experts))
                    data = memoryview(b"".join(weights.expert_row(expert).tobytes() for expert in rows))
                    while data:
                        data = data[stream.write(data) :]
                os.fsync(stream.fileno())
        except OSError as error:
            what = error.strerror or error
            raise RunError(
                f"cannot write {total} bytes of experts into {self.path.parent}: {what}"
            ) from error

    def _open(self) -> int:
        direct = getattr(os, "O_DIRECT", None)
        if direct is None:
            raise RunError("this system cannot read past the page cache (no O_DIRECT): no file tier")
        try:
            return os.open(self.path, os.O_RDONLY | direct)
        except OSError as error:
            what = error.strerror or error
            raise RunError(f"{self.path.parent} does not allow reads past the page cache: {what}") from error

    def start(self) -> None:
        """Nothing to prepare."""

    def fetch(self, expert: int, into: Any, asked_ns: int) -> None:
        """Raises `RunError` where the file was removed, is shorter than promised, or the disk fails."""
        view, offset = memoryview(into).cast("B"), expert * self.row_bytes
        try:
            if os.fstat(self._handle).st_nlink == 0:
                raise RunError(f"the experts' file {self.path} was removed during the run")
            for start in range(0, self.row_bytes, self._block_bytes):
                part = view[start : start + self._block_bytes]
                got = os.preadv(self._handle, [part], offset + start)
                if got != len(part):
                    size = os.fstat(self._handle).st_size
                    promised = self._experts * self.row_bytes
                    raise RunError(
                        f"the experts' file {self.path} is shorter than promised: {size} of {promised} bytes "
                        f"(expert {expert} needs bytes {offset} to {offset + self.row_bytes})"
                    )
        except OSError as error:
            raise RunError(
                f"cannot read expert {expert} from {self.path}: {error.strerror or error}"
            ) from error

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
        self.path.unlink(missing_ok=True)


def remove_leftovers(folder: Path) -> int:
    """Remove experts' files of processes that are gone; return how many."""
    removed = 0
    for path in folder.glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
    return removed


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
