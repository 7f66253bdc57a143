"""A trace file as readers see it: plain bytes, whatever it was compressed with, and never more than a limit."""

from __future__ import annotations

import gzip
import io
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO, cast

import zstandard

from ...errors import InputFileError
from ...files import existing_file

HEAD_BYTES = 65536
GZIP_MAGIC, ZSTD_MAGIC = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
SMALLEST_LIMIT_BYTES = 1 << 28
LARGEST_RATIO = 100  # routing text shrinks 5 to 30 times; zeros shrink 1000 (gzip) or 10,000 times (zstd)
ZSTD_CHUNK_BYTES = 4096  # a block of one repeated byte is 4 bytes for 131,072: at most 128 MiB a chunk
ZSTD_WINDOW_BYTES = 1 << 27  # what `zstd --long` writes; a larger one would be memory at the file's command


@dataclass(frozen=True)
class Source:
    """One input file. `limit_bytes` bounds what it may decompress to (None: 100 times its size, at least 256 MiB)."""

    path: Path
    limit_bytes: int | None = None

    @classmethod
    def at(cls, path: str | Path, limit_bytes: int | None = None) -> Source:
        """Raises `InputFileError` when there is no readable, non-empty file at `path`."""
        return cls(existing_file(path), limit_bytes)

    @cached_property
    def compression(self) -> str | None:
        """`gzip`, `zstd` or None, by the first bytes and never by the name."""
        with self.path.open("rb") as stream:
            magic = stream.read(4)
        if magic.startswith(GZIP_MAGIC):
            return "gzip"
        return "zstd" if magic == ZSTD_MAGIC else None

    @cached_property
    def head(self) -> bytes:
        """The first 64 KiB of content: what a format is recognised by."""
        with self.open() as stream:
            return stream.read(HEAD_BYTES)

    @property
    def size_limit_bytes(self) -> int:
        if self.limit_bytes is not None:
            return self.limit_bytes
        return max(SMALLEST_LIMIT_BYTES, LARGEST_RATIO * self.path.stat().st_size)

    @contextmanager
    def open(self) -> Iterator[BinaryIO]:
        """The content as a buffered stream. Broken or overlong compressed data raises `InputFileError`."""
        with self.path.open("rb") as raw:
            if self.compression is None:
                yield raw
                return
            pieces = _gunzipped(raw) if self.compression == "gzip" else _unzstd(raw)
            with io.BufferedReader(_Bounded(pieces, self), 1 << 20) as stream:
                yield cast(BinaryIO, stream)

    @contextmanager
    def plain_file(self) -> Iterator[Path]:
        """A path to the content uncompressed: the file itself, or a temporary one that goes away afterwards.

        Memory maps of the temporary file stay valid: the name goes, the data stays until they are dropped.
        """
        if self.compression is None:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="trace-", suffix=".plain") as copy:
            with self.open() as stream:
                while block := stream.read(1 << 20):
                    copy.write(block)
            copy.flush()
            yield Path(copy.name)


def _gunzipped(raw: BinaryIO) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=raw) as stream:
        while piece := stream.read(1 << 20):
            yield piece


def _unzstd(raw: BinaryIO) -> Iterator[bytes]:
    """Frame by frame, because the library's own stream reader takes a truncated frame for the end of the file."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES)
    frame = None
    while chunk := raw.read(ZSTD_CHUNK_BYTES):
        while chunk:
            frame = frame or decompressor.decompressobj()
            yield frame.decompress(chunk)
            chunk = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the file ends inside a frame")


class _Bounded(io.RawIOBase):
    """Decompressed bytes that turn every fault of the compressed data into an `InputFileError`."""

    def __init__(self, pieces: Iterator[bytes], source: Source) -> None:
        super().__init__()
        self._pieces, self._source, self._seen = pieces, source, 0
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            piece = self._next()
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _next(self) -> bytes | None:
        path, kind, limit = self._source.path, self._source.compression, self._source.size_limit_bytes
        try:
            piece = next(self._pieces, None)
        except (OSError, EOFError, zlib.error, zstandard.ZstdError, ValueError) as error:
            raise InputFileError(
                path, f"broken or truncated {kind} data: {error}", f"byte {self._seen} of the content"
            ) from error
        self._seen += len(piece or b"")
        if self._seen > limit:
            raise InputFileError(
                path,
                f"{path.stat().st_size} bytes of {kind} decompress to more than {limit} bytes; if the file is "
                "trusted, raise the decompression limit",
            )
        return piece
