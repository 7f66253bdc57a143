"""Experts out of a slot cache into one contiguous block: a copy, bit for bit."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import UsageError
from .shapes import dimensions


def gather_experts(cache_SE: Tensor, slots_K: Tensor) -> Tensor:
    """The K slots' E elements each, [K, E], in the order asked; a slot may be asked twice.

    Raises `UsageError` where a slot is not in 0 … S − 1.
    """
    num_slots, _ = dimensions("cache_SE", cache_SE, 2)
    dimensions("slots_K", slots_K, 1)
    if any(not 0 <= slot < num_slots for slot in slots_K.tolist()):
        raise UsageError(f"slots {slots_K.tolist()} are not all in 0 … {num_slots - 1}")
    rows = [cache_SE[slot] for slot in slots_K.tolist()]
    return torch.stack(rows) if rows else cache_SE[:0].clone()
