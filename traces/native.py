"""Our own trace file: one safetensors file, its facts as JSON in the metadata, memory-mapped when read.

Layout (schema 1). Metadata has the single key `expert_trace` (one key, so that equal traces give equal bytes),
a JSON object with sorted keys: schema, model, source, licence, synthetic, num_experts, layer_ids, notes.

| tensor | shape | type |
|---|---|---|
| experts | T, L, K | smallest signed integer that holds −1 … num_experts − 1 |
| sequence_start | S | int64 |
| is_prefill | T | bool |
| weights | T, L, K | float16, float32 or float64 |
| predicted, predicted_scores | T, L, H, M | as experts; as weights |
| token_ids | T | int32 |
| step_id | T | int64 |

All but the first two may be absent. No pickle anywhere; the reader is `readers/native.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ..files import written_whole
from .expert_trace import ExpertTrace
from .ids import as_ids

SCHEMA = 1
METADATA_KEY = "expert_trace"


def save_trace(trace: ExpertTrace, path: str | Path) -> None:
    """Write `trace` to `path`, whole or not at all; the same trace always gives the same bytes.

    Raises `UsageError` for ids that are no ids (a file that cannot be read back is never written), `RunError`
    where the disk refuses.
    """
    trace.check_ids()
    tensors: dict[str, NDArray[Any]] = {
        "experts": as_ids(trace.experts_TLK, trace.num_experts),
        "sequence_start": trace.sequence_start_S.astype(np.int64, copy=False),
    }
    optional: dict[str, NDArray[Any] | None] = {
        "is_prefill": trace.is_prefill_T,
        "weights": trace.weights_TLK,
        "predicted": None
        if trace.predicted_TLHM is None
        else as_ids(trace.predicted_TLHM, trace.num_experts),
        "predicted_scores": trace.predicted_scores_TLHM,
        "token_ids": trace.token_ids_T,
        "step_id": trace.step_id_T,
    }
    tensors |= {name: array for name, array in optional.items() if array is not None}
    facts = {
        "schema": SCHEMA,
        "model": trace.model,
        "source": trace.source,
        "licence": trace.licence,
        "synthetic": trace.synthetic,
        "num_experts": trace.num_experts,
        "layer_ids": [int(layer) for layer in trace.layer_ids_L],
        "notes": list(trace.notes),
    }
    with written_whole(path) as part:
        save_file(
            {name: np.ascontiguousarray(array) for name, array in tensors.items()},
            part,
            metadata={METADATA_KEY: json.dumps(facts, sort_keys=True, ensure_ascii=False)},
        )
