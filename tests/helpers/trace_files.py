"""Trace files in exactly the form that each engine and each generic format writes, built from an `ExpertTrace`."""

from __future__ import annotations

import base64
import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
from codesign.traces.expert_trace import ExpertTrace


def small_trace(
    *,
    lengths: tuple[int, ...] = (6, 4),
    layer_ids: tuple[int, ...] = (0, 1, 2),
    num_experts: int = 16,
    top_k: int = 2,
    prompt: int = 2,
    seed: int = 0,
    **changes: Any,
) -> ExpertTrace:
    """Random routing with weights, phases and token ids; sequences of the given lengths."""
    rng = np.random.default_rng(seed)
    tokens = sum(lengths)
    shape = (tokens, len(layer_ids), num_experts)
    experts = np.argsort(rng.random(shape), axis=2)[:, :, :top_k].astype(np.int16)
    starts = np.r_[0, np.cumsum(lengths)[:-1]].astype(np.int64)
    position = np.arange(tokens) - np.repeat(starts, lengths)
    fields: dict[str, Any] = {
        "experts_TLK": experts,
        "layer_ids_L": np.array(layer_ids, np.int32),
        "num_experts": num_experts,
        "sequence_start_S": starts,
        "model": "test-model",
        "source": "a test",
        "licence": "CC0-1.0",
        "synthetic": False,
        "is_prefill_T": position < prompt,
        "weights_TLK": rng.random(experts.shape).astype(np.float32),
        "token_ids_T": rng.integers(0, 50_000, tokens).astype(np.int32),
    }
    return ExpertTrace(**(fields | changes))


def same_trace(left: ExpertTrace, right: ExpertTrace, *, but: tuple[str, ...] = ()) -> None:
    """Assert that two traces hold the same, whatever integer types they keep their ids in."""
    for name in ExpertTrace.__slots__:
        if name in but:
            continue
        a, b = getattr(left, name), getattr(right, name)
        if a is None or b is None or not isinstance(a, np.ndarray):
            assert (a is None) == (b is None), name
            assert a is None or a == b, name
        else:
            np.testing.assert_array_equal(a, b, err_msg=name)


def rows_of(trace: ExpertTrace) -> list[dict[str, Any]]:
    """The generic records, a token and layer each, in order."""
    bounds = np.r_[trace.sequence_start_S, trace.num_tokens]
    rows = []
    for sequence in range(trace.num_sequences):
        for at in range(bounds[sequence], bounds[sequence + 1]):
            for index, layer in enumerate(trace.layer_ids_L.tolist()):
                row: dict[str, Any] = {
                    "sequence": sequence,
                    "token": int(at - bounds[sequence]),
                    "layer": layer,
                    "topk_ids": trace.experts_TLK[at, index].tolist(),
                }
                if trace.is_prefill_T is not None:
                    row["phase"] = "prefill" if trace.is_prefill_T[at] else "decode"
                if trace.weights_TLK is not None:
                    row["topk_weights"] = trace.weights_TLK[at, index].tolist()
                if trace.token_ids_T is not None:
                    row["token_id"] = int(trace.token_ids_T[at])
                rows.append(row)
    return rows


def meta_of(trace: ExpertTrace) -> dict[str, Any]:
    return {
        "type": "meta",
        "model": trace.model,
        "num_experts": trace.num_experts,
        "top_k": trace.top_k,
        "source": trace.source,
        "licence": trace.licence,
    }


def jsonl_text(trace: ExpertTrace) -> str:
    return "".join(json.dumps(record) + "\n" for record in (meta_of(trace), *rows_of(trace)))


def csv_text(trace: ExpertTrace) -> str:
    rows = rows_of(trace)
    text = io.StringIO()
    text.write(f"# {json.dumps(meta_of(trace))}\n")
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: json.dumps(cell) if isinstance(cell, list) else cell for name, cell in row.items()}
        )
    return text.getvalue()


def write_parquet(trace: ExpertTrace, path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist(rows_of(trace))
    meta = json.dumps(meta_of(trace))
    pq.write_table(table.replace_schema_metadata({"expert_trace_meta": meta}), path)


def npy_bytes(array: np.ndarray[Any, Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def npy_base64(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(npy_bytes(array)).decode()


def sglang_pass(
    ids_LTK: np.ndarray[Any, Any],
    *,
    pass_id: int,
    input_ids: list[int],
    positions: list[int],
    mode: int,
    extend: list[int] | None,
    rank: int = 0,
    physical: int = 16,
) -> dict[str, Any]:
    """One record of `per_token` mode: 8 columns whatever K is, as `_DetailSinglePassGatherer` collects it."""
    import torch

    layers, tokens, top_k = ids_LTK.shape
    wide = torch.full((layers, tokens, 8), -1, dtype=torch.int32)
    wide[:, :, :top_k] = torch.from_numpy(np.ascontiguousarray(ids_LTK).astype(np.int32))
    counts = torch.zeros((layers, physical), dtype=torch.int32)
    for layer in range(layers):
        real = wide[layer][wide[layer] >= 0].long()
        counts[layer] = torch.bincount(real, minlength=physical)[:physical]
    return {
        "forward_pass_id": pass_id,
        "rank": rank,
        "gatherer_key": "primary",
        "input_ids": input_ids,
        "positions": positions,
        "extend_seq_lens": extend,
        "forward_mode": mode,
        "topk_ids_of_layer": wide,
        "misc_objects": [],
        "global_physical_count": counts,
    }


def save_sglang(path: Path, records: list[dict[str, Any]], placement: np.ndarray[Any, Any]) -> None:
    import torch

    torch.save(
        {"records": records, "last_physical_to_logical_map": torch.from_numpy(placement.astype(np.int64))}, path
    )
