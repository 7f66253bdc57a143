"""How each published table becomes rows of one of our operations: columns, units, number formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from ...errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

FORMATS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {  # the package's name → (weights, activations)
        "bfloat16": ("bf16", "bf16"),
        "float16": ("fp16", "fp16"),
        "half": ("fp16", "fp16"),
        "fp8": ("fp8", "fp8"),
        "fp8_block": ("fp8_block", "fp8"),
        "nvfp4": ("nvfp4", "nvfp4"),
        "int8": ("int8", "int8"),
        "sq": ("int8", "int8"),  # SmoothQuant: 8-bit integers on both sides
        "int8_wo": ("int8", "bf16"),
        "int4_wo": ("int4_g128", "bf16"),
        "w4afp8": ("int4_g128", "fp8"),
        "w4a16_mxfp4": ("mxfp4", "bf16"),
        "w4a8_mxfp4_mxfp8": ("mxfp4", "mxfp8"),
    }
)


def _formats(names: pd.Series, side: int) -> pd.Series:
    unknown = set(names.unique()) - FORMATS.keys()
    if unknown:
        raise UsageError(
            f"the published tables name number formats unknown here: {', '.join(sorted(unknown))}"
        )
    return names.map({name: pair[side] for name, pair in FORMATS.items()})


def _gemm(table: pd.DataFrame) -> dict[str, object]:
    kind = table["gemm_dtype"]
    return {"m": table["m"], "n": table["n"], "k": table["k"], "weights": _formats(kind, 0),
            "activations": _formats(kind, 1), "dtype": kind}  # fmt: skip


def _moe(table: pd.DataFrame) -> dict[str, object]:
    kind = table["moe_dtype"]
    return {
        "tokens": table["num_tokens"], "hidden": table["hidden_size"], "width": table["inter_size"],
        "num_experts": table["num_experts"], "top_k": table["topk"], "tp": table["moe_tp_size"],
        "ep": table["moe_ep_size"], "gated": ~table["kernel_source"].str.contains("nongated"),
        "distribution": table["distribution"], "weights": _formats(kind, 0), "activations": _formats(kind, 1),
        "dtype": kind,
    }  # fmt: skip


def _attention(table: pd.DataFrame) -> dict[str, object]:
    window = table["window_size"].fillna(0) if "window_size" in table.columns else 0
    kv_heads = table["num_key_value_heads"]
    return {
        "batch": table["batch_size"], "heads": table["num_heads"],
        "kv_heads": kv_heads.where(kv_heads > 0, table["num_heads"]), "head_dim": table["head_dim"],
        "window": np.asarray(window, np.int64) + np.zeros(len(table), np.int64),
        "activations": _formats(table["attn_dtype"], 1), "kv_cache": _formats(table["kv_cache_dtype"], 1),
        "dtype": table["attn_dtype"] + "/" + table["kv_cache_dtype"],
    }  # fmt: skip


def _prefill(table: pd.DataFrame) -> dict[str, object]:
    return {**_attention(table), "tokens": table["isl"], "prefix": table["step"]}


def _decode(table: pd.DataFrame) -> dict[str, object]:
    return {**_attention(table), "context": table["isl"] + table["step"]}


def _mamba(table: pd.DataFrame) -> dict[str, object]:
    return {"batch": table["batch_size"], "tokens": table["seq_len"], "heads": table["nheads"],
            "head_dim": table["head_dim"], "groups": table["n_groups"], "state": table["d_state"],
            "dtype": "bfloat16"}  # fmt: skip


def _gdn(table: pd.DataFrame) -> dict[str, object]:
    return {"batch": table["batch_size"], "tokens": table["seq_len"], "key_heads": table["num_k_heads"],
            "value_heads": table["num_v_heads"], "key_dim": table["head_k_dim"], "value_dim": table["head_v_dim"],
            "dtype": "bfloat16"}  # fmt: skip


def _all_reduce(table: pd.DataFrame) -> dict[str, object]:
    # Read as counts of 16-bit elements, an assumption: a ring would then send 469 GB/s per GPU on 8 x H200, above NVLink's
    # 450, which only reduction inside the switch explains; as bytes it would be half of that. Not settled by the tables.
    return {"kind": "all_reduce", "size_bytes": table["message_size"] * 2, "ranks": table["num_gpus"],
            "activations": _formats(table["allreduce_dtype"], 1), "dtype": table["allreduce_dtype"]}  # fmt: skip


def _all_to_all(table: pd.DataFrame) -> dict[str, object]:
    return {"tokens": table["num_tokens"], "hidden": table["hidden_size"], "top_k": table["topk"],
            "num_experts": table["num_experts"], "ranks": table["ep_size"], "phase": table["phase"],
            "deduplicate": table["comm_backend"].str.endswith("_ht"), "dtype": table["comm_dtype"]}  # fmt: skip


def _deepep(table: pd.DataFrame, phase: str, *, deduplicate: bool) -> dict[str, object]:
    """DeepEP inside one node of 8 devices, tokens per device; dispatch in fp8, combine in bf16.

    The low-latency table states its rates: 8 · 7168 · (1 + 4/128) bytes a token at dispatch, 8 · 7168 · 2 at combine, one
    copy per expert. The other table states none; in 16 bits its dispatch would pass 556 GB/s on NVLink's 450.
    """
    return {"tokens": table["num_token"], "hidden": table["hidden_size"], "top_k": table["num_topk"],
            "num_experts": table["num_experts"], "ranks": 8 * table["node_num"], "phase": phase,
            "activations": "fp8" if phase == "dispatch" else "bf16", "deduplicate": deduplicate,
            "dtype": "fp8" if phase == "dispatch" else "bfloat16"}  # fmt: skip


def _usual_sms(table: pd.DataFrame) -> pd.DataFrame:
    """DeepEP's own number of processors for its throughput kernels, 20 (its `Buffer.num_sms`); the table tries others."""
    return table[(table["dispatch_sms"] == 20) & (table["combine_sms"] == 20)]


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """One table's name, the operation it measures, its rows as ours, seconds per unit of its time column."""

    file: str
    operation: str
    rows: Callable[[pd.DataFrame], dict[str, object]]
    time: str = "latency"
    unit_s: float = 1e-3
    kernel: str | None = None
    """Name of the kernel where the table has none of its own."""
    chosen: Callable[[pd.DataFrame], pd.DataFrame] | None = None
    """Which rows of the table are read; None: all."""


TABLES: tuple[PublishedTable, ...] = (
    PublishedTable("gemm_perf", "gemm", _gemm),
    PublishedTable("moe_perf", "moe", _moe),
    PublishedTable("context_attention_perf", "attention_prefill", _prefill),
    PublishedTable("generation_attention_perf", "attention_decode", _decode),
    PublishedTable("mamba2_perf", "scan", _mamba),
    PublishedTable("gdn_perf", "linear_attention", _gdn),
    PublishedTable("kda_perf", "linear_attention", _gdn),
    PublishedTable("custom_allreduce_perf", "collective", _all_reduce),
    PublishedTable("moe_a2a_perf", "all_to_all", _all_to_all, unit_s=1e-6),
    *(
        PublishedTable("wideep_deepep_ll_perf", "all_to_all", partial(_deepep, phase=phase, deduplicate=False),
                       f"{phase}_avg_t_us", 1e-6, "deepep_low_latency")
        for phase in ("dispatch", "combine")
    ),
    *(
        PublishedTable("wideep_deepep_normal_perf", "all_to_all", partial(_deepep, phase=phase, deduplicate=True),
                       f"{phase}_transmit_us", 1e-6, "deepep_throughput", _usual_sms)
        for phase in ("dispatch", "combine")
    ),
)
