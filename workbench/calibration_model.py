"""The shapes that one model really runs, as operations to be measured beside the grid and always fitted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..sim.ops import DecodeAttention, Gemm, GroupedGemm, Norm, PrefillAttention, RouterTopK, Sampling, Scan

if TYPE_CHECKING:
    from ..sim.model import ModelSpec

_FORMAT = "bf16"
_DECODE = ((1, 128), (1, 1024), (1, 4096), (8, 1024))
"""Batch and context."""


def model_operations(spec: ModelSpec, *, full: bool) -> list[Any]:
    """Every distinct operation of the model's layers at a range of tokens, those that have a kernel here.

    Linear attention and latent attention (MLA) have none yet; their projections are measured.
    """
    tokens = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if full else (1, 4, 16, 64, 256)
    found = [operation for layer in spec.layers for operation in _layer(layer, tokens)]
    found += [Norm(count, spec.hidden) for count in tokens]
    found += [Sampling(rows, spec.vocab) for rows in (1, 4, 16)]
    return list(dict.fromkeys(found))


def _layer(layer: Any, tokens: tuple[int, ...]) -> Iterator[Any]:
    from ..sim.ffn import DenseFfn, MoeFfn
    from ..sim.mixers import Attention, Mamba2

    mixer, ffn = layer.mixer, layer.ffn
    for inputs, outputs in mixer.matrices if mixer is not None else ():
        yield from (Gemm(count, outputs, inputs, _FORMAT, _FORMAT, _FORMAT) for count in tokens)
    if isinstance(mixer, Attention) and mixer.head_dim == mixer.value_dim:
        heads = (mixer.heads, mixer.kv_heads, mixer.head_dim)
        yield from (PrefillAttention(1, max(count, 2), *heads, window=mixer.window) for count in tokens)
        yield from (
            DecodeAttention(batch, context, *heads, window=mixer.window) for batch, context in _DECODE
        )
    if isinstance(mixer, Mamba2):
        sizes = (mixer.heads, mixer.head_dim, mixer.groups, mixer.state)
        yield from (Scan(1, count, *sizes) for count in tokens)
    if isinstance(ffn, DenseFfn):
        for inputs, outputs in ffn.matrices:
            yield from (Gemm(count, outputs, inputs, _FORMAT, _FORMAT, _FORMAT) for count in tokens)
    if isinstance(ffn, MoeFfn):
        for count in tokens:
            yield GroupedGemm(
                count, ffn.expert_width, ffn.intermediate, ffn.num_experts, ffn.top_k, gated=ffn.gated, weights=_FORMAT,
                activations=_FORMAT,
            )  # fmt: skip
            yield RouterTopK(count, ffn.num_experts, ffn.top_k)
            yield Gemm(count, ffn.num_experts, ffn.hidden, _FORMAT, _FORMAT, _FORMAT)
            if ffn.latent is not None:
                yield Gemm(count, ffn.latent, ffn.hidden, _FORMAT, _FORMAT, _FORMAT)
                yield Gemm(count, ffn.hidden, ffn.latent, _FORMAT, _FORMAT, _FORMAT)
