"""What a device has left for experts: the capacity `auto`."""

from __future__ import annotations

from ..errors import UsageError
from .hardware import HardwareSpec
from .model import ModelSpec


def auto_capacity(
    model: ModelSpec, hardware: HardwareSpec, *, weights: str, context_tokens: int, batch: int = 1
) -> int:
    """Routed experts (in the format `weights`) that fit beside all else: whole experts, at most all of the model's.

    All else: everything but routed experts in 16 bits, the KV cache and recurrent state of `batch` sequences of
    `context_tokens`. Raises `UsageError` with the byte counts when that alone does not fit.
    """
    resident = model.resident_bytes()
    kept = batch * (model.kv_bytes(context_tokens) + model.state_bytes_per_sequence)
    left = hardware.usable_bytes - resident - kept
    if left < 0:
        raise UsageError(
            f"{model.name} does not fit on {hardware.name}: {hardware.usable_bytes:,} bytes are usable, "
            f"{resident:,} are needed for everything but routed experts and {kept:,} for the KV cache of "
            f"{batch} × {context_tokens} tokens"
        )
    everything = len(model.moe_layer_ids) * model.num_experts
    return min(everything, left // model.expert_bytes(weights))
