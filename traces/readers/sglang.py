"""Dumps of SGLang's expert distribution recorder (`expert_distribution_recorder_*.pt`).

Form: `python/sglang/srt/eplb/expert_distribution.py` in sgl-project/sglang (commit 02295fe5ac5c; `ForwardMode` from
`srt/model_executor/forward_batch_info.py`, commit 003bbaf9ab79; read 2026). By `--expert-distribution-recorder-mode`:

- `per_token`: `{"records": […], "last_physical_to_logical_map": [layers, physical]}`, one file per rank. A record is
  one forward pass: `forward_pass_id`, `rank`, `gatherer_key`, `input_ids`, `positions`, `extend_seq_lens`,
  `forward_mode`, `topk_ids_of_layer` [layers, tokens, 8] int32, `misc_objects`, `global_physical_count`.
  It always has 8 columns, −1 beyond K: columns that are −1 throughout are trimmed. Ids are *physical*: they are
  mapped back through the recorded placement. Dense layers stay −1 and are left out.
- `per_pass`: the same without the ids; `stat`, `stat_approx`: `{"rank", "logical_count" [steps, layers, experts], …}`.
  Both hold counts only and become a `MarginalTrace`.

The recorder writes no request ids. Sequences are therefore followed by position: a prompt segment at position 0
begins one, and a later token belongs to the first unfinished sequence of the batch that waits for its position;
where two waited, or none, the notes say so. The file is loaded with `weights_only=True`, so nothing in it is run.
"""

from __future__ import annotations

import pickle
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputFileError, UsageError
from ..expert_trace import PADDING, ExpertTrace
from ..ids import as_ids
from ..marginal import MarginalTrace
from . import npy
from .options import ReadOptions
from .rows import ranges, short_rows
from .sglang_sequences import Followed, follow
from .source import Source

PICKLE_PROTOCOL = 0x80
EXTEND, DECODE, MIXED, IDLE = 1, 2, 3, 4
READABLE_MODES = (EXTEND, DECODE, MIXED, IDLE)
DATA_PICKLE = "data.pkl"


def recognises(source: Source) -> bool:
    head = source.head
    if head[:1] == bytes([PICKLE_PROTOCOL]):
        return True  # an old-style torch file or a bare pickle; torch refuses the latter
    return any(name.rpartition("/")[2] == DATA_PICKLE for name in npy.zip_names(source))


def read(source: Source, options: ReadOptions) -> ExpertTrace | MarginalTrace:
    dump = _load(source)
    if not isinstance(dump, dict):
        raise InputFileError(source.path, f"expected a dict from the recorder, found {type(dump).__name__}")
    if "logical_count" in dump:
        return _of_stat(source, dump)
    records = dump.get("records")
    if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
        raise InputFileError(
            source.path, f"no 'records' and no 'logical_count' among {sorted(map(str, dump))}"
        )
    if not records:
        raise InputFileError(
            source.path, "holds no forward pass (was recording started before the requests?)", "records"
        )
    notes: list[str] = []
    places = dump.get("last_physical_to_logical_map")
    placement = None if places is None else _array(source, places, "last_physical_to_logical_map", 2)
    if "topk_ids_of_layer" not in records[0]:
        return _of_pass(source, records, placement)
    return _of_token(source, options, records, placement, notes)


def _load(source: Source) -> Any:
    try:
        import torch
    except ImportError as error:
        raise UsageError(
            f"{source.path}: reading a .pt file needs PyTorch: pip install 'codesign-workbench[measure]'"
        ) from error
    with source.plain_file() as path:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                claimed = sum(member.file_size for member in archive.infolist())
            if claimed > max(source.size_limit_bytes, path.stat().st_size):
                raise InputFileError(
                    source.path, f"claims to hold {claimed} bytes, more than {source.size_limit_bytes}"
                )
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise InputFileError(
                source.path,
                "holds more than tensors, lists and numbers; it was not loaded, because loading such a file could "
                f"run code ({str(error).splitlines()[0][:120]})",
            ) from error
        except Exception as error:  # torch raises whatever its zip and pickle readers raise on broken files
            text = str(error).splitlines() or [type(error).__name__]
            raise InputFileError(source.path, f"not a readable .pt file: {text[0][:200]}") from error


def _array(source: Source, value: Any, where: str, dimensions: int) -> NDArray[np.int64]:
    """A tensor or nested list as int64, once its claimed size has been seen to be really there."""
    import torch

    if isinstance(value, torch.Tensor):
        if value.numel() > value.untyped_storage().nbytes() // max(value.element_size(), 1):
            raise InputFileError(
                source.path,
                f"claims {value.numel()} elements but stores {value.untyped_storage().nbytes()} bytes",
                where,
            )
        if value.is_floating_point() or value.is_complex() or value.is_sparse or value.is_quantized:
            raise InputFileError(source.path, f"is {value.dtype}, expected integers", where)
        array: NDArray[Any] = value.numpy()
    else:
        try:
            array = np.array(value)
        except (ValueError, OverflowError) as error:
            raise InputFileError(source.path, f"expected integers: {error}", where) from error
    if array.size and array.dtype.kind not in "iu":
        raise InputFileError(source.path, f"is {array.dtype}, expected integers", where)
    if array.ndim != dimensions:
        raise InputFileError(source.path, f"has shape {list(array.shape)}, expected {dimensions} axes", where)
    return array.astype(np.int64)


def _of_token(
    source: Source,
    options: ReadOptions,
    records: list[dict[str, Any]],
    placement: NDArray[np.int64] | None,
    notes: list[str],
) -> ExpertTrace:
    _refuse_copies(source, records, notes)
    passes: list[NDArray[np.int64]] = []
    followed = Followed()
    for index, record in enumerate(records):
        where = f"record {index}"
        mode = record.get("forward_mode")
        if mode not in READABLE_MODES:
            raise InputFileError(
                source.path,
                f"forward_mode {mode!r} is not read (1 extend, 2 decode, 3 mixed, 4 idle are): speculative and "
                "diffusion passes do not say which of their tokens stay",
                where,
            )
        routes = _array(source, record.get("topk_ids_of_layer"), f"{where}, topk_ids_of_layer", 3)
        tokens = _array(source, record.get("input_ids"), f"{where}, input_ids", 1)
        positions = _array(source, record.get("positions"), f"{where}, positions", 1)
        if not tokens.size == positions.size == routes.shape[1] or (
            passes and routes.shape[0] != passes[0].shape[0]
        ):
            raise InputFileError(
                source.path,
                f"{tokens.size} input ids, {positions.size} positions, ids of shape {list(routes.shape)}: they do "
                "not fit each other or the passes before",
                where,
            )
        lengths = record.get("extend_seq_lens") if mode in (EXTEND, MIXED) else None
        segments = (
            [1] * tokens.size
            if lengths is None
            else _array(source, lengths, f"{where}, extend_seq_lens", 1).tolist()
        )
        if sum(segments) != tokens.size or min(segments, default=1) < 0:
            raise InputFileError(
                source.path,
                f"extend_seq_lens add up to {sum(segments)}, but there are {tokens.size} tokens",
                where,
            )
        follow(followed, index, record.get("rank"), mode, segments, positions, tokens)
        passes.append(routes)
    routes_LTK = np.concatenate(passes, axis=1)
    if routes_LTK.shape[1] == 0:
        raise InputFileError(source.path, "every pass is empty")
    notes += followed.notes()
    logical, num_experts = _logical(source, options, routes_LTK, placement, notes)
    columns = (logical != PADDING).any(axis=(0, 1))
    layers = (logical != PADDING).any(axis=(1, 2))
    if not columns.any():
        raise InputFileError(source.path, "every id is -1")
    if not columns.all():
        notes.append(f"{int((~columns).sum())} of {columns.size} columns are -1 throughout and are trimmed")
    if not layers.all():
        notes.append(
            f"layers {ranges(np.flatnonzero(~layers).tolist())} of {layers.size} hold no routing: dense, left out"
        )
    order = np.lexsort((np.array(followed.position), np.array(followed.sequence)))
    ids = np.ascontiguousarray(logical[layers][:, order][:, :, columns].transpose(1, 0, 2))
    notes += short_rows(ids)
    real = (ids != PADDING).any(axis=(1, 2))
    if not real.all():
        notes.append(f"{int((~real).sum())} padding rows (-1 in every slot) are no tokens and are left out")
        order, ids = order[real], ids[real]
    sequence = np.array(followed.sequence)[order]
    trace = ExpertTrace(
        experts_TLK=ids,
        layer_ids_L=np.flatnonzero(layers).astype(np.int32),
        num_experts=num_experts,
        sequence_start_S=np.flatnonzero(np.r_[True, sequence[1:] != sequence[:-1]]).astype(np.int64),
        model="unknown",
        source=f"SGLang expert distribution recorder (per_token), {source.path.name}",
        licence="unknown",
        synthetic=False,
        is_prefill_T=np.array(followed.prefill, bool)[order],
        token_ids_T=np.array(followed.token, np.int32)[order],
        step_id_T=np.array(followed.step, np.int64)[order],
        notes=tuple(notes),
    )
    try:
        trace.check_ids()
    except UsageError as error:
        raise InputFileError(
            source.path,
            f"{error} (a fused shared expert is recorded as one more routed one: record without fusion)",
        ) from error
    return trace


def _refuse_copies(source: Source, records: list[dict[str, Any]], notes: list[str]) -> None:
    """Several ranks in one file are data parallel (other tokens) or copies of each other (refused)."""
    ranks = sorted({repr(record.get("rank")) for record in records})
    if len(ranks) < 2:
        return
    seen: dict[Any, dict[str, Any]] = {}
    for index, record in enumerate(records):
        other = seen.setdefault(record.get("forward_pass_id"), record)
        same = all(record.get(key) == other.get(key) for key in ("input_ids", "positions"))
        if (
            other is not record
            and other.get("rank") != record.get("rank")
            and same
            and record.get("input_ids")
        ):
            raise InputFileError(
                source.path,
                f"pass {record.get('forward_pass_id')!r} has the same tokens on ranks {other.get('rank')!r} and "
                f"{record.get('rank')!r}: tensor-parallel ranks record copies; keep the records of one rank",
                f"record {index}",
            )
    notes.append(
        f"ranks {', '.join(ranks)} hold different tokens: read as data parallel, each with its own passes"
    )


def _logical(
    source: Source,
    options: ReadOptions,
    routes_LTK: NDArray[np.int64],
    placement: NDArray[np.int64] | None,
    notes: list[str],
) -> tuple[NDArray[np.integer], int]:
    """Logical ids and how many experts a layer has."""
    layers, _, _ = routes_LTK.shape
    if placement is None:
        number = options.num_experts or int(routes_LTK.max()) + 1
        notes.append("no placement was recorded; ids are taken as logical ones")
    else:
        number = int(placement.max()) + 1
        if placement.shape[0] != layers or placement.min() < 0:
            raise InputFileError(
                source.path,
                f"has shape {list(placement.shape)} with values from {placement.min()}, the ids have {layers} layers",
                "last_physical_to_logical_map",
            )
        if options.num_experts is not None and options.num_experts != number:
            raise InputFileError(
                source.path, f"places {number} experts, but {options.num_experts} was asked for"
            )
    limit = number if placement is None else placement.shape[1]
    bad = (routes_LTK < PADDING) | (routes_LTK >= limit)
    if bad.any():
        layer, token, column = (int(i) for i in np.argwhere(bad)[0])
        raise InputFileError(
            source.path,
            f"{routes_LTK[layer, token, column]} is not a physical expert id (0 to {limit - 1}, or -1)",
            f"layer {layer}, recorded token {token}, column {column}",
        )
    if placement is None:
        return as_ids(routes_LTK, number), number
    if (placement != np.arange(placement.shape[1])).any():
        notes.append(
            f"{placement.shape[1]} physical experts mapped back to {number} logical ones by the placement at the end "
            "of the recording; passes before a rebalancing would be wrong"
        )
    mapped = np.empty(routes_LTK.shape, as_ids(routes_LTK[:0], number).dtype)
    for layer in range(layers):
        ids = routes_LTK[layer]
        mapped[layer] = np.where(ids == PADDING, PADDING, placement[layer][np.maximum(ids, 0)])
    return mapped, number


def _of_pass(
    source: Source, records: list[dict[str, Any]], placement: NDArray[np.int64] | None
) -> MarginalTrace:
    counts = np.stack(
        [
            _array(source, record.get("global_physical_count"), f"record {i}, global_physical_count", 2)
            for i, record in enumerate(records)
        ]
    )
    if placement is not None:
        if placement.shape != counts.shape[1:] or placement.min() < 0:
            raise InputFileError(
                source.path,
                f"has shape {list(placement.shape)}, the counts {list(counts.shape[1:])}",
                "last_physical_to_logical_map",
            )
        logical = np.zeros((*counts.shape[:2], int(placement.max()) + 1), np.int64)
        for layer, places in enumerate(placement):
            for physical, expert in enumerate(places.tolist()):
                logical[:, layer, expert] += counts[:, layer, physical]
        counts = logical
    return _marginal(source, counts, "per_pass")


def _of_stat(source: Source, dump: dict[str, Any]) -> MarginalTrace:
    return _marginal(source, _array(source, dump["logical_count"], "logical_count", 3), "stat")


def _marginal(source: Source, counts: NDArray[np.int64], mode: str) -> MarginalTrace:
    """Layers that nobody ever used are dense (case B06), steps without a token are unused buffer."""
    if (counts < 0).any():
        raise InputFileError(source.path, "holds a negative count")
    layers, steps = (counts > 0).any(axis=(0, 2)), (counts > 0).any(axis=(1, 2))
    if not layers.any():
        raise InputFileError(source.path, "every count is 0")
    notes = []
    if not layers.all():
        notes.append(
            f"layers {ranges(np.flatnonzero(~layers).tolist())} have no counts: dense layers, left out"
        )
    if not steps.all():
        notes.append(f"{int((~steps).sum())} empty steps left out")
    return MarginalTrace(
        counts_PLN=counts[steps][:, layers],
        layer_ids_L=np.flatnonzero(layers).astype(np.int32),
        model="unknown",
        source=f"SGLang expert distribution recorder ({mode}), {source.path.name}",
        licence="unknown",
        notes=tuple(notes),
    )
