"""A fresh file for storage reads that bypass the page cache, gone when its context ends."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import RunError

if TYPE_CHECKING:
    from .cpu.storage_read import DirectFile

_FILE_BYTES = 2**28


@contextlib.contextmanager
def storage_file(folder: Path) -> Iterator[DirectFile | None]:
    """The file, or None where the file system refuses such reads. Raises `RunError` where nothing can be written."""
    from .cpu.storage_read import MIB, direct_file

    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".storage-") as stream:
            for _ in range(_FILE_BYTES // MIB):
                stream.write(os.urandom(MIB))
            stream.flush()
            os.fsync(stream.fileno())
            with contextlib.ExitStack() as stack:
                try:
                    file = stack.enter_context(direct_file(stream.name, 64 * MIB))
                except RunError:
                    file = None
                yield file
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}") from error
