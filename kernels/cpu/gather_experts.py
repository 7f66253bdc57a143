"""Experts out of a slot cache into one contiguous block: a copy, bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import UsageError
from ..reference.shapes import dimensions


def gather_experts(cache_SE: Tensor, slots_K: Tensor) -> Tensor:
    """[K, E]; meaning and errors as `kernels.reference.gather_experts`."""
    num_slots, _ = dimensions("cache_SE", cache_SE, 2)
    dimensions("slots_K", slots_K, 1)
    if slots_K.numel() and not 0 <= int(slots_K.min()) <= int(slots_K.max()) < num_slots:
        raise UsageError(f"slots {slots_K.tolist()} are not all in 0 … {num_slots - 1}")
    with torch.inference_mode():
        return cache_SE.index_select(0, slots_K.to(torch.int64))
