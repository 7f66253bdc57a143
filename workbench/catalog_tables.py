"""The catalog at a glance: one line a model, one line a machine, text with units."""

from __future__ import annotations

from ..sim.catalog import hardware_names, load_hardware, load_model, model_names
from .units import UNKNOWN, format_binary_bytes, format_bytes, format_parameters, format_rate


def model_table() -> list[dict[str, str]]:
    """Every known model: experts, sizes; expert bytes are those of one expert of one layer in bf16."""
    rows = []
    for name in model_names():
        spec = load_model(name)
        rows.append(
            {
                "model": spec.name,
                "architecture": spec.architecture,
                "layers": str(len(spec.layers)),
                "MoE layers": str(len(spec.moe_layer_ids)) if spec.is_moe else UNKNOWN,
                "experts": f"{spec.top_k} of {spec.num_experts}" if spec.is_moe else UNKNOWN,
                "parameters": format_parameters(spec.total_params),
                "active": format_parameters(spec.active_params),
                "one expert, bf16": format_bytes(spec.expert_bytes("bf16")) if spec.is_moe else UNKNOWN,
                "KV cache per token": format_bytes(spec.kv_bytes_per_token()),
            }
        )
    return rows


def hardware_table() -> list[dict[str, str]]:
    """Every known machine: memory and links, where experts would live and what they would come over."""
    rows = []
    for name in hardware_names():
        spec = load_hardware(name)
        rows.append(
            {
                "hardware": spec.name,
                "is": spec.title,
                "memory": format_binary_bytes(spec.memory_capacity.value),
                "memory bandwidth": format_rate(spec.memory_bandwidth.value),
                "host link": format_rate(spec.link_bandwidth.value),
                "storage": format_rate(spec.storage_bandwidth.value),
            }
        )
    return rows
