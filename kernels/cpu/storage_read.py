"""Reads of a file past the page cache: `O_DIRECT`, one request of `block_bytes` after another."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import RunError, UsageError

MIB = 2**20
"""One request. Larger ones varied by 47 % from run to run on a virtual disk, those of 1 MiB by 4 %."""
_ALIGNMENT = 4096  # what O_DIRECT demands of offsets, lengths and addresses on every common file system


class DirectFile:
    """A file open for reads past the page cache, and the aligned buffer that they fill."""

    def __init__(self, handle: int, size_bytes: int, buffer: mmap.mmap) -> None:
        self.handle, self.size_bytes, self.buffer = handle, size_bytes, buffer

    def read(self, offset_bytes: int, size_bytes: int, block_bytes: int = MIB) -> memoryview:
        """The file's bytes from there on; valid until the next read. Raises `UsageError` where they are not aligned."""
        return storage_read(self, offset_bytes, size_bytes, block_bytes=block_bytes)


def storage_read(
    file: DirectFile, offset_bytes: int, size_bytes: int, *, block_bytes: int = MIB
) -> memoryview:
    """`size_bytes` of the file into its buffer in requests of `block_bytes`. All three are multiples of 4096."""
    for name, value in (
        ("offset_bytes", offset_bytes),
        ("size_bytes", size_bytes),
        ("block_bytes", block_bytes),
    ):
        if value < 0 or value % _ALIGNMENT:
            raise UsageError(f"{name} must be a multiple of {_ALIGNMENT}, got {value}")
    if (
        not size_bytes
        or not block_bytes
        or size_bytes > len(file.buffer)
        or offset_bytes + size_bytes > file.size_bytes
    ):
        raise UsageError(
            f"cannot read {size_bytes} bytes at {offset_bytes} in blocks of {block_bytes}: the file has {file.size_bytes} "
            f"bytes, the buffer {len(file.buffer)}"
        )
    view = memoryview(file.buffer)
    for start in range(0, size_bytes, block_bytes):
        wanted = min(block_bytes, size_bytes - start)
        got = os.preadv(file.handle, [view[start : start + wanted]], offset_bytes + start)
        if got != wanted:
            raise RunError(f"the disk gave {got} of {wanted} bytes at {offset_bytes + start}")
    return view[:size_bytes]


@contextmanager
def direct_file(path: str | Path, buffer_bytes: int) -> Iterator[DirectFile]:
    """`path` open for `storage_read`. Raises `RunError` where the file or `O_DIRECT` is refused."""
    flag = getattr(os, "O_DIRECT", None)
    if flag is None:
        raise RunError("this system cannot read past the page cache (no O_DIRECT)")
    try:
        handle = os.open(path, os.O_RDONLY | flag)
    except OSError as error:
        raise RunError(f"cannot read {path} past the page cache: {error.strerror or error}") from error
    try:
        buffer = mmap.mmap(-1, max(buffer_bytes, _ALIGNMENT))  # anonymous maps start at a page
        yield DirectFile(handle, os.fstat(handle).st_size, buffer)
    finally:
        os.close(handle)
