"""What a calibration of a GPU measures: the shapes of `calibration_plan`, with the tokens and contexts that fill a GPU.

Operations are those that have a kernel there; copies go within the device, to it and from it, from pinned memory and from
pageable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from ..sim.ops import Copy, DecodeAttention, Gemm, GroupedGemm, MoeLayer, Scan
from .calibration_plan import attention_shapes, gemm_shapes, mixture_shapes, moe_layers, scan_shapes

_KIB = 2**10


def _gemms(full: bool) -> Iterator[Gemm]:
    rows = (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192) if full else (1, 16, 128, 1024, 4096)
    for form in ("bf16", "fp32") if full else ("bf16",):
        for (n, k), m in product(gemm_shapes(full), rows):
            yield Gemm(m, n, k, weights=form, activations=form, out=form)


def _tokens(full: bool) -> tuple[int, ...]:
    return (1, 4, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) if full else (1, 8, 64, 512, 4096)


def _moes(full: bool) -> Iterator[GroupedGemm]:
    for (hidden, width, experts, top_k, gated), tokens in product(mixture_shapes(full), _tokens(full)):
        yield GroupedGemm(tokens, hidden, width, experts, top_k, gated=gated)


def _moe_layers(full: bool) -> Iterator[MoeLayer]:
    return moe_layers(mixture_shapes(full), _tokens(full) if full else (1, 64, 1024))


def _decodes(full: bool) -> Iterator[DecodeAttention]:
    batches, contexts = ((1, 8, 32, 128), (512, 2048, 8192, 32768)) if full else ((1, 32), (1024, 8192))
    for (heads, kv_heads, size, window), batch, context in product(attention_shapes(full), batches, contexts):
        yield DecodeAttention(batch, context, heads, kv_heads, size, window=window or None)


def _scans(full: bool) -> Iterator[Scan]:
    lengths = (128, 512, 1024, 2048, 4096, 8192) if full else (256, 4096)
    for (heads, size, groups, state), both, tokens in product(scan_shapes(full), (False, True), lengths):
        yield Scan(1, tokens, heads, size, groups, state, bidirectional=both)


def _copies(full: bool) -> Iterator[Copy]:
    sizes = [4 * _KIB << step for step in range(0, 18 if full else 17, 1 if full else 2)]  # to 256 or 512 MiB
    for size in sizes:
        yield Copy(size, "device", "device")
        for (source, target), pinned in product((("host", "device"), ("device", "host")), (True, False)):
            yield Copy(size, source, target, pinned=pinned)


GPU_GRIDS: Mapping[str, Any] = {
    "gemm": _gemms, "moe": _moes, "moe_layer": _moe_layers, "attention_decode": _decodes, "scan": _scans, "copy": _copies,
}  # fmt: skip
"""Operation → its grid; `True` for the full suite."""
