"""Experts out of a slot cache into one contiguous block, copied as bits: every format, NaN payloads included."""

# Kernels take pointers and tiles, which have no Python type:
# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import torch
import triton.language as tl
from torch import Tensor

from ..reference.shapes import dimensions
from .launch import cdiv, check_placement, jit, tile

_WORDS = ((8, torch.int64), (4, torch.int32), (2, torch.int16), (1, torch.uint8))
_TILE_BYTES = 16384  # 128 bytes a thread at 4 warps: enough in flight to fill the memory system


@jit
def _gather(cache, slots, out, words, WORDS: tl.constexpr):
    choice = tl.program_id(1).to(tl.int64)
    slot = tl.load(slots + choice).to(tl.int64)
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    ok = word < words
    tl.store(out + choice * words + word, tl.load(cache + slot * words + word, mask=ok), mask=ok)


def gather_experts(cache_SE: Tensor, slots_K: Tensor) -> Tensor:
    """[K, E], as `kernels.reference.gather_experts`; that the slots exist is the caller's promise. `slots_K` are integers.

    Raises `UsageError` where shapes, device or layout do not fit.
    """
    dimensions("cache_SE", cache_SE, 2)
    dimensions("slots_K", slots_K, 1)
    check_placement({"cache_SE": cache_SE, "slots_K": slots_K})
    out_KE = torch.empty(len(slots_K), cache_SE.shape[1], dtype=cache_SE.dtype, device=cache_SE.device)
    if out_KE.numel() == 0:
        return out_KE
    row_bytes = cache_SE.shape[1] * cache_SE.element_size()
    start_bytes = cache_SE.storage_offset() * cache_SE.element_size()
    word_bytes, word = next(
        (size, word) for size, word in _WORDS if row_bytes % size == 0 and start_bytes % size == 0
    )
    words = row_bytes // word_bytes
    across = tile(words, largest=_TILE_BYTES // word_bytes)
    _gather[(cdiv(words, across), len(slots_K))](
        cache_SE.view(word), slots_K, out_KE.view(word), words, WORDS=across, num_warps=4
    )
    return out_KE
