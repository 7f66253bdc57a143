"""What a device has room for once everything that must be there is there."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import UsageError
from .hardware import HardwareSpec
from .model import ModelSpec


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Bytes of device memory, by what they hold."""

    usable_bytes: int
    """The device's memory less what driver and runtime keep."""
    resident_bytes: int
    """Dense weights, router, shared experts, embeddings: everything but routed experts."""
    context_bytes: int
    """KV cache and recurrent state of all sequences."""
    expert_bytes: int
    """One routed expert."""
    all_experts: int
    """Routed experts of all layers together."""

    @property
    def left_bytes(self) -> int:
        """What is left for routed experts; negative where the rest does not fit."""
        return self.usable_bytes - self.resident_bytes - self.context_bytes

    @property
    def experts(self) -> int:
        """Routed experts that fit, at most all of them."""
        return max(0, min(self.all_experts, self.left_bytes // self.expert_bytes))

    @property
    def fits_whole(self) -> bool:
        """Whether nothing needs to be offloaded."""
        return self.experts == self.all_experts


def memory_plan(
    model: ModelSpec,
    hardware: HardwareSpec,
    *,
    weights: str,
    context_tokens: int,
    batch: int,
    resident_weights: str = "bf16",
    kv_bits: int = 16,
) -> MemoryPlan:
    """Where the bytes go: routed experts in `weights`, the rest in `resident_weights`, scales included (case B14).

    `batch` sequences of `context_tokens` tokens each. Raises `UsageError` for a dense model or sizes below 1.
    """
    for name, value, least in (("context", context_tokens, 0), ("batch", batch, 1)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    moe_layers = len(model.moe_layer_ids)
    return MemoryPlan(
        usable_bytes=hardware.usable_bytes,
        resident_bytes=model.resident_bytes(resident_weights),
        context_bytes=batch * (model.kv_bytes(context_tokens, kv_bits) + model.state_bytes_per_sequence),
        expert_bytes=model.expert_bytes(weights),
        all_experts=moe_layers * model.num_experts,
    )


def auto_capacity(model: ModelSpec, hardware: HardwareSpec, *, weights: str, context_tokens: int, batch: int) -> int:
    """Routed experts that fit beside dense weights, shared experts and the KV cache: `--capacity auto`.

    Raises `UsageError` where not even one token's top-k experts fit, saying what takes the room.
    """
    plan = memory_plan(model, hardware, weights=weights, context_tokens=context_tokens, batch=batch)
    if plan.experts < model.top_k:
        raise UsageError(
            f"capacity auto: {model.name} leaves no room on {hardware.name} for one token's {model.top_k} experts of "
            f"{plan.expert_bytes:,} bytes: {plan.usable_bytes:,} bytes usable, {plan.resident_bytes:,} of weights that "
            f"stay, {plan.context_bytes:,} of context ({batch} × {context_tokens} tokens)"
        )
    return plan.experts
