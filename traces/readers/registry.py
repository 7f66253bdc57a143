"""All formats of expert traces. To add one: a file with `recognises` and `read`, and a line in `READERS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ...errors import InputFileError, UsageError, unknown_name
from ..expert_trace import ExpertTrace
from ..marginal import CANNOT, MarginalTrace
from . import csv_table, jsonl, moe_cache_lab, native, parquet, sglang, vllm
from .options import ReadOptions
from .source import Source


@dataclass(frozen=True, slots=True)
class Reader:
    """`recognises` judges by content, never by the name; `read` raises `InputFileError` for what is wrong."""

    recognises: Callable[[Source], bool]
    read: Callable[[Source, ReadOptions], ExpertTrace | MarginalTrace]


READERS: dict[str, Reader] = {  # asked in this order
    "native": Reader(native.recognises, native.read),
    "sglang": Reader(sglang.recognises, sglang.read),
    "parquet": Reader(parquet.recognises, parquet.read),
    "moe_cache_lab": Reader(moe_cache_lab.recognises, moe_cache_lab.read),
    "jsonl": Reader(jsonl.recognises, jsonl.read),
    "vllm": Reader(vllm.recognises, vllm.read),
    "csv": Reader(csv_table.recognises, csv_table.read),
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
    to (default: 100 times its size, at least 256 MiB). Raises `InputFileError` naming the file and the place in
    it; also for a file that holds counts only, which cannot be replayed (`read_any` reads it).
    """
    trace = read_any(
        path,
        format=format,
        num_experts=num_experts,
        lenient=lenient,
        decompressed_limit_bytes=decompressed_limit_bytes,
    )
    if isinstance(trace, MarginalTrace):
        raise InputFileError(path, CANNOT)
    return trace


def read_any(
    path: str | Path,
    *,
    format: str | None = None,
    num_experts: int | None = None,
    lenient: bool = False,
    decompressed_limit_bytes: int | None = None,
) -> ExpertTrace | MarginalTrace:
    """As `read_trace`, but files that hold counts only are read too, as a `MarginalTrace`."""
    if num_experts is not None and num_experts < 1:
        raise UsageError(f"num_experts must be at least 1, got {num_experts}")
    if format is not None and format not in READERS:
        raise unknown_name("trace format", format, READERS)
    source = Source.at(path, decompressed_limit_bytes)
    options = ReadOptions(num_experts=num_experts, lenient=lenient)
    return READERS[format or recognise(source)].read(source, options)


def recognise(source: Source) -> str:
    """The name of the first format that knows the content; `InputFileError` when none does."""
    if not source.head:
        raise InputFileError(source.path, "the file is empty")
    for name, reader in READERS.items():
        if reader.recognises(source):
            return name
    raise InputFileError(
        source.path,
        f"no known trace format begins like this ({source.head[:16]!r}); name one: {', '.join(READERS)}",
    )
