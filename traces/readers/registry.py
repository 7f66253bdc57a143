"""All formats of expert traces. To add one: a file with `recognises` and `read`, and a line in `READERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputFileError, UsageError, unknown_name
from ..expert_trace import ExpertTrace
from . import native
from .options import ReadOptions
from .source import Source


@dataclass(frozen=True, slots=True)
class Reader:
    """`recognises` judges by content (never by the file's name); `read` raises `InputFileError` for what is wrong."""

    recognises: Callable[[Source], bool]
    read: Callable[[Source, ReadOptions], ExpertTrace]


READERS: dict[str, Reader] = {  # asked in this order
    "native": Reader(native.recognises, native.read),
}


def read_trace(
    path: str | Path,
    *,
    format: str | None = None,
    num_experts: int | None = None,
    lenient: bool = False,
    decompressed_limit_bytes: int | None = None,
) -> ExpertTrace:
    """The trace in `path`: plain, gzip or zstd, the format found from the content unless `format` names it.

    `num_experts` is for files that do not say how many routed experts a layer has; with `lenient`, unreadable
    rows are skipped and counted in the notes; `decompressed_limit_bytes` bounds what a compressed file may grow
    to (default: 100 times its size, at least 256 MiB). Raises `InputFileError` naming the file and the place in it.
    """
    if num_experts is not None and num_experts < 1:
        raise UsageError(f"num_experts must be at least 1, got {num_experts}")
    source = Source.at(path, decompressed_limit_bytes)
    options = ReadOptions(num_experts=num_experts, lenient=lenient)
    if format is None:
        format = recognise(source)
    if format not in READERS:
        raise unknown_name("trace format", format, READERS)
    return READERS[format].read(source, options)


def recognise(source: Source) -> str:
    """The name of the first format that knows the content; `InputFileError` when none does."""
    for name, reader in READERS.items():
        if reader.recognises(source):
            return name
    raise InputFileError(
        source.path,
        f"no known trace format begins like this ({source.head[:16]!r}); name one with --format: {', '.join(READERS)}",
    )
