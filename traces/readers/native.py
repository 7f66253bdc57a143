"""Reads our own trace files (layout: `traces/native.py`) as memory maps: only touched pages enter memory."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputFileError, UsageError
from ..expert_trace import ExpertTrace
from ..native import METADATA_KEY, SCHEMA
from .options import ReadOptions
from .source import Source

HEADER_LIMIT_BYTES = 100_000_000  # the limit of the safetensors library itself
DTYPES = {
    "BOOL": "?", "I8": "<i1", "U8": "<u1", "I16": "<i2", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8",
    "F16": "<f2", "F32": "<f4", "F64": "<f8",
}  # fmt: skip
INTEGERS = ("I8", "U8", "I16", "U16", "I32", "U32", "I64")
FLOATS = ("F16", "F32", "F64")
TENSORS: dict[str, tuple[tuple[str, ...], int]] = {  # name: allowed types, dimensions
    "experts": (INTEGERS, 3),
    "sequence_start": (("I64",), 1),
    "is_prefill": (("BOOL",), 1),
    "weights": (FLOATS, 3),
    "predicted": (INTEGERS, 4),
    "predicted_scores": (FLOATS, 4),
    "token_ids": (("I32",), 1),
    "step_id": (("I64",), 1),
}
FACTS: dict[str, type] = {
    "model": str, "source": str, "licence": str, "synthetic": bool, "num_experts": int, "layer_ids": list,
    "notes": list,
}  # fmt: skip


def recognises(source: Source) -> bool:
    """A safetensors file: eight bytes of length, then a JSON object."""
    head = source.head
    return len(head) > 9 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") <= HEADER_LIMIT_BYTES


def read(source: Source, options: ReadOptions) -> ExpertTrace:
    with source.plain_file() as path:
        header, data_start = _header(source, path)
        facts = _facts(source, header, options)
        size = path.stat().st_size - data_start
        raw = np.asarray(np.memmap(path, dtype=np.uint8, mode="r")) if size else np.zeros(0, np.uint8)
        tensors = {
            name: _tensor(source, name, header[name], raw[data_start:]) for name in TENSORS if name in header
        }
    for name in ("experts", "sequence_start"):
        if name not in tensors:
            raise InputFileError(source.path, "is missing", f"tensor {name!r}")
    try:
        trace = ExpertTrace(
            experts_TLK=tensors["experts"],
            layer_ids_L=np.array(facts["layer_ids"], np.int32),
            num_experts=facts["num_experts"],
            sequence_start_S=tensors["sequence_start"],
            model=facts["model"],
            source=facts["source"],
            licence=facts["licence"],
            synthetic=facts["synthetic"],
            is_prefill_T=tensors.get("is_prefill"),
            weights_TLK=tensors.get("weights"),
            predicted_TLHM=tensors.get("predicted"),
            predicted_scores_TLHM=tensors.get("predicted_scores"),
            token_ids_T=tensors.get("token_ids"),
            step_id_T=tensors.get("step_id"),
            notes=tuple(facts["notes"]),
        )
        trace.check_ids()
    except (UsageError, OverflowError) as error:
        raise InputFileError(source.path, str(error)) from error
    return trace


def _header(source: Source, path: Path) -> tuple[dict[str, Any], int]:
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(size - 8, HEADER_LIMIT_BYTES):
            raise InputFileError(
                source.path, f"header claims {length} bytes, the file has {size}; truncated?", "header"
            )
        try:
            header = json.loads(stream.read(length))
        except (ValueError, RecursionError) as error:
            raise InputFileError(source.path, f"not JSON: {error}", "header") from error
    if not isinstance(header, dict):
        raise InputFileError(source.path, "must be a JSON object", "header")
    return header, 8 + length


def _facts(source: Source, header: dict[str, Any], options: ReadOptions) -> dict[str, Any]:
    metadata = header.get("__metadata__")
    text = metadata.get(METADATA_KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        raise InputFileError(
            source.path, f"a safetensors file without {METADATA_KEY!r} metadata, so no expert trace", "header"
        )
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputFileError(source.path, f"not JSON: {error}", f"metadata {METADATA_KEY!r}") from error
    if not isinstance(facts, dict) or facts.get("schema") != SCHEMA:
        found = facts.get("schema") if isinstance(facts, dict) else facts
        raise InputFileError(
            source.path, f"schema {found!r}; this version reads schema {SCHEMA}", "metadata 'schema'"
        )
    for name, kind in FACTS.items():
        value = facts.get(name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InputFileError(
                source.path, f"expected {kind.__name__}, found {value!r}", f"metadata {name!r}"
            )
    if not all(isinstance(layer, int) and not isinstance(layer, bool) for layer in facts["layer_ids"]):
        raise InputFileError(source.path, "must be whole numbers", "metadata 'layer_ids'")
    if not all(isinstance(note, str) for note in facts["notes"]):
        raise InputFileError(source.path, "must be texts", "metadata 'notes'")
    if options.num_experts is not None and options.num_experts != facts["num_experts"]:
        raise InputFileError(
            source.path,
            f"is {facts['num_experts']}, but {options.num_experts} was asked for",
            "metadata 'num_experts'",
        )
    return facts


def _tensor(source: Source, name: str, entry: Any, data: NDArray[np.uint8]) -> NDArray[Any]:
    """A view of the mapped bytes, after its type, shape and place have been checked against the file's size."""
    place = f"tensor {name!r}"
    types, dimensions = TENSORS[name]
    try:
        kind, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        whole = all(type(number) is int and number >= 0 for number in (*shape, start, end))
    except (TypeError, KeyError, ValueError) as error:
        raise InputFileError(source.path, "needs dtype, shape and two data_offsets", place) from error
    if kind not in types:
        raise InputFileError(source.path, f"has type {kind}, expected one of {', '.join(types)}", place)
    if not whole or len(shape) != dimensions or 0 in shape:
        raise InputFileError(source.path, f"has shape {shape}, expected {dimensions} sizes above 0", place)
    dtype = np.dtype(DTYPES[kind])
    needed = math.prod(shape) * dtype.itemsize
    if end - start != needed or end > data.size:
        raise InputFileError(
            source.path,
            f"shape {shape} of {kind} needs {needed} bytes, its place is {start} to {end} of {data.size}; truncated?",
            place,
        )
    part = data[start:end]
    view = part.view(dtype) if part.ctypes.data % dtype.itemsize == 0 else part.copy().view(dtype)
    if kind == "BOOL" and (part > 1).any():
        raise InputFileError(source.path, "holds a byte that is neither 0 nor 1", place)
    return view.reshape(shape)
