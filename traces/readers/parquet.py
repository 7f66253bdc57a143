"""Generic trace Parquet: the columns of the generic JSONL, `topk_ids` and `topk_weights` as list columns.

What JSONL says in its meta line may stand, as JSON, in the schema's metadata under `expert_trace_meta`. Errors
name the row, counted from 1.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputFileError
from ..expert_trace import ExpertTrace
from .jsonl import meta_facts
from .options import ReadOptions
from .records import LARGEST, REQUIRED, RecordRows, find_names
from .rows import PHASES, UNSAID, Columns, Facts, assemble
from .source import Source

META_KEY = b"expert_trace_meta"
VALUE_BYTES = 8


def recognises(source: Source) -> bool:
    return source.head.startswith(b"PAR1")


def read(source: Source, options: ReadOptions) -> ExpertTrace:
    import pyarrow as pa
    import pyarrow.parquet as pq

    notes: list[str] = []
    with source.plain_file() as path:
        try:
            file = pq.ParquetFile(path)
            _refuse_bomb(source, file.metadata)
            schema = file.schema_arrow
            names = find_names(schema.names.__contains__)
            missing = [ours for ours in REQUIRED if ours not in names]
            if missing:
                raise InputFileError(
                    source.path, f"lacks {', '.join(missing)}: it has {', '.join(schema.names)}", "columns"
                )
            if len(set(schema.names)) < len(schema.names):
                raise InputFileError(
                    source.path, f"names a column twice: {', '.join(schema.names)}", "columns"
                )
            table = file.read(columns=list(names.values()))
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            if isinstance(error, InputFileError):
                raise
            raise InputFileError(source.path, f"not a readable Parquet file: {error}") from error
    facts = Facts()
    text = (schema.metadata or {}).get(META_KEY)
    if text is not None:
        try:
            meta = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputFileError(source.path, f"not JSON: {error}", "metadata 'expert_trace_meta'") from error
        if not isinstance(meta, dict):
            raise InputFileError(source.path, "expected a JSON object", "metadata 'expert_trace_meta'")
        facts = meta_facts(source, meta, "metadata 'expert_trace_meta'")
    columns = None if options.lenient else _columns(table, names)
    if columns is None:  # something does not fit: the slow way names the row, or skips it
        rows = RecordRows(source, options, place="row")
        for start in range(0, table.num_rows, 8192):
            batch = table.slice(start, 8192).to_pylist()
            rows.add(range(start + 1, start + 1 + len(batch)), batch)
        columns = rows.columns(notes)
    return assemble(source, options, facts, columns, notes)


def _refuse_bomb(source: Source, metadata: Any) -> None:
    """Parquet compresses inside, and a run of equal values takes no room: both what its pages claim to hold and the
    number of values count against the same limit."""
    claimed = 0
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        values = sum(group.column(j).num_values for j in range(group.num_columns))
        claimed += max(group.total_byte_size, VALUE_BYTES * values)
    if claimed > source.size_limit_bytes:
        raise InputFileError(
            source.path,
            f"{source.path.stat().st_size} bytes claim to hold {claimed}, more than {source.size_limit_bytes}; "
            "if the file is trusted, raise the decompression limit",
        )


def _columns(table: Any, names: dict[str, str]) -> Columns | None:
    """Whole columns without a loop over rows; None when any of them has another type, a gap or an impossible value."""
    import pyarrow as pa

    arrays = {ours: table.column(name).combine_chunks() for ours, name in names.items()}
    if any(array.null_count for array in arrays.values()):
        return None
    plain: dict[str, NDArray[np.int64]] = {}
    for ours in ("token", "layer", "token_id", "step"):
        if ours in arrays:
            if not pa.types.is_integer(arrays[ours].type):
                return None
            plain[ours] = arrays[ours].to_numpy(zero_copy_only=False).astype(np.int64)
            if plain[ours].size and not 0 <= plain[ours].min() <= plain[ours].max() <= LARGEST[ours]:
                return None
    ids = _flat(arrays["topk_ids"], pa.types.is_integer)
    if ids is None:
        return None
    weights = None
    if "topk_weights" in arrays:
        found = _flat(arrays["topk_weights"], pa.types.is_floating)
        if found is None or not np.array_equal(found[1], ids[1]):
            return None
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and that is refused with its row
            weights = found[0].astype(np.float32)
    rows = table.num_rows
    sequence, labels = np.zeros(rows, np.int64), list[Any]([0])
    if "sequence" in arrays:
        encoded = arrays["sequence"].dictionary_encode()
        labels = encoded.dictionary.to_pylist()
        sequence = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        if all(type(label) is int for label in labels):
            sequence = np.argsort(np.argsort(np.array(labels, np.int64)))[sequence]
            labels = sorted(labels)
        elif not all(type(label) is str for label in labels):
            return None
    phase = None
    if "phase" in arrays:
        encoded = arrays["phase"].dictionary_encode()
        said = encoded.dictionary.to_pylist()
        if not all(word in PHASES for word in said):
            return None
        codes = np.array([PHASES[word] for word in said] or [UNSAID], np.int8)
        phase = codes[encoded.indices.to_numpy(zero_copy_only=False)]
    return Columns(
        place="row",
        line_R=np.arange(1, rows + 1, dtype=np.int64),
        sequence_R=sequence,
        token_R=plain["token"],
        layer_R=plain["layer"],
        counts_R=ids[1],
        ids=ids[0].astype(np.int64),
        weights=weights,
        phase_R=phase,
        token_id_R=plain.get("token_id"),
        step_R=plain.get("step"),
        sequence_names=labels,
    )


def _flat(array: Any, wanted: Any) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
    """Values and list lengths of a list column whose values are of the wanted kind and never null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return None
    values = array.flatten()
    if values.null_count or not wanted(values.type):
        return None
    lengths = pc.list_value_length(array).to_numpy(zero_copy_only=False).astype(np.int64)
    return values.to_numpy(zero_copy_only=False), lengths
