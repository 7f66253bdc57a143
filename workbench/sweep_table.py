"""The table of a sweep: one tidy row a scenario in a fixed order of columns, as Parquet with deterministic bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputFileError
from ..files import existing_file, written_whole

if TYPE_CHECKING:
    import pandas as pd

_CHUNK = 8192  # rows that are in memory at once

CONFIGURATION: Mapping[str, str] = {
    "scenario": "text", "trace": "text", "repeat": "whole", "model": "text", "hardware": "text", "profile": "text",
    "link_bytes_per_s": "real", "weights": "text", "contract": "text", "scope": "text", "batch": "whole",
    "context": "whole", "experts_home": "text", "prefetch_budget_bytes": "whole", "decisions": "text",
    "decision_ns": "whole", "warm": "flag", "train_share": "real", "seed": "whole", "tie_seed": "whole", "policy": "text",
    "prefetch": "text", "miss": "text", "capacity": "text",
}  # fmt: skip
OUTCOME: Mapping[str, str] = {
    "status": "text", "error": "text", "engine": "text", "is_bound": "flag", "is_causal": "flag", "sequences": "whole",
    "capacity_experts": "whole", "capacity_bytes": "whole", "resident_share": "real", "r_mean": "real", "r_p95": "real",
    "r_share_above_1": "real", "logical": "whole", "accesses": "whole", "hits": "whole", "misses": "whole",
    "late": "whole", "collision": "whole", "compulsory": "whole", "capacity_misses": "whole", "hit_rate": "real",
    "effective_miss_fraction": "real", "evictions": "whole", "experts_moved": "whole", "bytes_moved": "whole",
    "first_load_bytes": "whole", "bytes_per_output_token": "real", "prefetch_issued": "whole",
    "prefetch_used": "whole", "prefetch_late": "whole", "prefetch_wasted": "whole", "prefetch_evicted_unused": "whole",
    "prefetch_refused": "whole", "bypasses": "whole", "waves": "whole",
    "computed_on_host": "whole", "lowered": "whole", "substituted": "whole", "skipped": "whole",
    "lossy_weight_share": "real", "ttft_s": "real",
    "tpot_s": "real", "makespan_s": "real", "compute_busy_s": "real", "link_busy_s": "real", "storage_busy_s": "real",
    "stall_s": "real", "decision_s": "real", "decision_cost_ns": "whole", "withdrawn_bytes": "whole",
}  # fmt: skip
COLUMNS: Mapping[str, str] = {**CONFIGURATION, **OUTCOME}
PER_SEQUENCE = ("ttft_s", "tpot_s")
COUNTED_PER_SEQUENCE = ("hits", "accesses")
"""Kept where every pass is of one sequence."""
LAYER_COUNTS = ("hits", "late", "collision", "compulsory", "capacity_misses")
"""In the order of a run's `layer_counts`."""


def write_table(rows: Iterable[Mapping[str, Any]], target: Path) -> int:
    """Write rows as they come, some thousand at a time; return how many. The same rows give the same bytes."""
    import pyarrow as pa

    kinds = {"text": pa.string(), "whole": pa.int64(), "real": pa.float64(), "flag": pa.bool_()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])
    return _write(rows, target, schema, lambda row: {name: row.get(name) for name in COLUMNS})


def write_sequences(rows: Iterable[Mapping[str, Any]], target: Path) -> int:
    """Times and hits of each scenario's sequences beside the table: what intervals and paired tests are made from."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("scenario", pa.string()),
            *((name, pa.list_(pa.float64())) for name in PER_SEQUENCE),
            *((name, pa.list_(pa.int64())) for name in COUNTED_PER_SEQUENCE),
        ]
    )
    names = {name: f"{name}_by_sequence" for name in (*PER_SEQUENCE, *COUNTED_PER_SEQUENCE)}
    return _write(
        rows, target, schema,
        lambda row: {"scenario": row["scenario"], **{name: row.get(source) for name, source in names.items()}},
    )  # fmt: skip


def write_layers(rows: Iterable[Mapping[str, Any]], target: Path) -> int:
    """Counts and stall of each layer, a list a scenario: small, and read only for the rows that a page shows."""
    import pyarrow as pa

    names = (*LAYER_COUNTS, "stall_ns")
    schema = pa.schema(
        [("scenario", pa.string()), *((name, pa.list_(pa.int64())) for name in ("layer_ids", *names))]
    )
    return _write(
        rows, target, schema,
        lambda row: {"scenario": row["scenario"], "layer_ids": row.get("layer_ids"),
                     **{name: row.get(f"{name}_by_layer") for name in names}},
    )  # fmt: skip


def _write(rows: Iterable[Mapping[str, Any]], target: Path, schema: Any, shaped: Any) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 0
    with written_whole(target) as part, pq.ParquetWriter(part, schema, compression="zstd") as writer:
        for chunk in _chunks(map(shaped, rows)):
            writer.write_table(pa.Table.from_pylist(chunk, schema=schema))
            count += len(chunk)
    return count


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    iterator = iter(rows)
    while chunk := list(itertools.islice(iterator, _CHUNK)):
        yield chunk


def read_table(path: Path, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """A table that was written, unknown values as missing. Raises `InputFileError` for what is no Parquet."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(existing_file(path), columns=list(columns) if columns else None)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise InputFileError(path, f"is not readable Parquet: {error}") from error
    kinds = {pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    frame: pd.DataFrame = table.to_pandas(types_mapper=kinds.get)
    return frame
