"""NumPy arrays from untrusted bytes: no pickle, and the header's claim checked against the size before allocation."""

from __future__ import annotations

import io
import math
import warnings
import zipfile
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from ...errors import InputFileError
from .source import Source

MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"


def zip_names(source: Source) -> list[str]:
    """Names of the members of a zip file; empty when it is none (a truncated one, say)."""
    if not source.head.startswith(ZIP_MAGIC):
        return []
    with source.plain_file() as path:
        try:
            with zipfile.ZipFile(path) as archive:
                return archive.namelist()
        except (zipfile.BadZipFile, OSError, ValueError):
            return []


def read_npy(source: Source) -> NDArray[Any]:
    """The array of a `.npy` file as a memory map."""
    with source.plain_file() as path:
        with path.open("rb") as stream:
            shape, fortran, dtype, offset = _header(source, stream, path.stat().st_size, "the array")
        order: Any = "F" if fortran else "C"
        return np.asarray(np.memmap(path, dtype, "r", offset, shape, order))


def read_npz(source: Source) -> dict[str, NDArray[Any]]:
    """All arrays of a `.npz` file; together they may not exceed the decompression limit."""
    arrays: dict[str, NDArray[Any]] = {}
    with source.plain_file() as path:
        try:
            with zipfile.ZipFile(path) as archive:
                claimed = sum(member.file_size for member in archive.infolist())
                if claimed > source.size_limit_bytes:
                    raise InputFileError(
                        source.path, f"claims to hold {claimed} bytes, more than {source.size_limit_bytes}"
                    )
                for member in archive.infolist():
                    name = member.filename.removesuffix(".npy")
                    with archive.open(member) as stream:
                        data = stream.read(member.file_size + 1)
                    arrays[name] = npy_of_bytes(source, data, f"array {name!r}")
        except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError, RuntimeError) as error:
            raise InputFileError(source.path, f"broken or truncated .npz archive: {error}") from error
    return arrays


def npy_of_bytes(source: Source, data: bytes, where: str) -> NDArray[Any]:
    """The array of a `.npy` held in memory; a view of `data`."""
    stream = io.BytesIO(data)
    shape, fortran, dtype, offset = _header(source, stream, len(data), where)
    flat = np.frombuffer(data, dtype, math.prod(shape), offset)
    return flat.reshape(shape, order="F" if fortran else "C")


def _header(
    source: Source, stream: BinaryIO, size: int, where: str
) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, column-major or not, type, and where the data begins. Only plain integers are let through."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # headers written by Python 2 are read with a warning
            version = npy_format.read_magic(stream)
            if version == (1, 0):
                shape, fortran, dtype = npy_format.read_array_header_1_0(stream)
            elif version == (2, 0):
                shape, fortran, dtype = npy_format.read_array_header_2_0(stream)
            else:
                raise InputFileError(
                    source.path, f"NumPy format version {version} is not read (1.0 and 2.0 are)", where
                )
    except InputFileError:
        raise
    except (
        Exception
    ) as error:  # the header is parsed from untrusted text; NumPy raises what its parser raises
        raise InputFileError(source.path, f"not a NumPy array: {error}", where) from error
    if dtype.kind not in "iu":
        raise InputFileError(source.path, f"holds {dtype}, expected integers", where)
    needed, there = math.prod(shape) * dtype.itemsize, size - stream.tell()
    if any(length < 1 for length in shape) or needed != there:
        raise InputFileError(
            source.path,
            f"shape {list(shape)} of {dtype} needs {needed} bytes, {there} are there; truncated?",
            where,
        )
    return shape, fortran, dtype, stream.tell()
