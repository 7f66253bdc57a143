"""Weights of a decoder: what stays resident as tensors, and each routed expert as one row of bytes.

Shape letters: D hidden, V vocabulary, H heads, h KV heads, d head dimension, N experts a layer, M expert width, I rows of the
first expert matrix (2M with a gate: gate rows first).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError
from ...sim.ffn import DenseFfn, MoeFfn
from ...sim.mixers import Attention
from ...sim.model import ModelSpec

if TYPE_CHECKING:
    import torch
    from torch import Tensor

ALIGNMENT_BYTES = 4096
"""Expert rows begin and end at this, which reads past the page cache demand."""
_DRAWN = (
    2**22
)  # normal numbers drawn once; experts are windows of them, so that a gigabyte of weights costs no gigabyte of drawing

ExpertRow = Callable[[int], NDArray[np.uint8]]
"""Expert number (layer index × N + id) → its row, [row_bytes] uint8."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer. `moe_index` counts the layers with routed experts; None: a dense feed-forward or none."""

    norm_in_D: Tensor
    qkv_CD: Tensor
    out_DC: Tensor
    norm_ffn_D: Tensor
    attention: Attention
    moe_index: int | None
    router_ND: Tensor | None
    ffn_in_ID: Tensor | None
    """Of the dense feed-forward, or of the shared experts; None: there is none."""
    ffn_out_DM: Tensor | None


@dataclass(frozen=True, slots=True)
class ExpertShape:
    """How an expert lies in its row: first matrix [I, D], then [D, M], then padding."""

    hidden: int
    width: int
    gated: bool
    element_bytes: int

    @property
    def rows_in(self) -> int:
        return self.width * (2 if self.gated else 1)

    @property
    def weight_bytes(self) -> int:
        return (self.rows_in + self.width) * self.hidden * self.element_bytes

    @property
    def row_bytes(self) -> int:
        return -(-self.weight_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


@dataclass(frozen=True, slots=True)
class Weights:
    """A decoder's weights in one format on one device."""

    embedding_VD: Tensor
    head_VD: Tensor
    norm_final_D: Tensor
    layers: tuple[LayerWeights, ...]
    shape: ExpertShape
    num_experts: int
    top_k: int
    expert_row: ExpertRow
    dtype: torch.dtype
    device: str

    @property
    def moe_layers(self) -> int:
        return sum(layer.moe_index is not None for layer in self.layers)

    @property
    def experts_in_all(self) -> int:
        return self.moe_layers * self.num_experts


def random_weights(model: ModelSpec, *, dtype: str = "fp32", seed: int = 0, device: str = "cpu") -> Weights:
    """Normal weights of standard deviation 1/√inputs. Raises `UsageError` for layers that the runtime does not have."""
    import torch

    known = {"fp32": torch.float32, "bf16": torch.bfloat16}
    if dtype not in known:
        raise UsageError(f"the runtime works in {' and '.join(known)}, got dtype {dtype!r}")
    check_supported(model)
    form, generator = known[dtype], torch.Generator().manual_seed(seed)

    def drawn(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, generator=generator) / columns**0.5).to(form).to(device)

    def ones() -> Tensor:
        return torch.ones(model.hidden, dtype=form, device=device)

    layers, moe_index = [], 0
    for layer in model.layers:
        mixer, ffn = layer.mixer, layer.ffn
        assert isinstance(mixer, Attention)
        router = wide = narrow = None
        if isinstance(ffn, MoeFfn):
            router = drawn(ffn.num_experts, model.hidden)
        inner = ffn.shared_intermediate if isinstance(ffn, MoeFfn) else ffn.intermediate if ffn else 0
        if ffn is not None and inner:
            wide, narrow = drawn(inner * (2 if ffn.gated else 1), model.hidden), drawn(model.hidden, inner)
        index = moe_index if isinstance(ffn, MoeFfn) else None
        moe_index += isinstance(ffn, MoeFfn)
        mine = LayerWeights(
            ones(), drawn(mixer.qkv_columns, model.hidden), drawn(model.hidden, mixer.heads * mixer.value_dim),
            ones(), mixer, index, router, wide, narrow,
        )  # fmt: skip
        layers.append(mine)
    embedding = drawn(model.vocab, model.hidden) * model.hidden**0.5
    head = embedding if model.tied_embeddings else drawn(model.vocab, model.hidden)
    shape = ExpertShape(model.hidden, model.moe.intermediate, model.moe.gated, form.itemsize)
    return Weights(
        embedding, head, ones(), tuple(layers), shape, model.num_experts, model.top_k,
        _windows(shape, form, seed), form, device,
    )  # fmt: skip


def _windows(shape: ExpertShape, form: Any, seed: int) -> ExpertRow:
    """Each expert is a window into one block of normal numbers, at a place that depends on its number and the seed."""
    import torch

    count = shape.row_bytes // shape.element_bytes
    generator = torch.Generator().manual_seed(seed + 1)
    block = torch.randn(_DRAWN + count, generator=generator)
    values: NDArray[np.uint8] = (block / shape.hidden**0.5).to(form).contiguous().view(torch.uint8).numpy()

    def row(expert: int) -> NDArray[np.uint8]:
        start = int(np.random.default_rng((seed, expert)).integers(_DRAWN)) * shape.element_bytes
        return values[start : start + shape.row_bytes]

    return row


def check_supported(model: ModelSpec) -> None:
    """Raise `UsageError` that names the first layer the runtime cannot run."""
    moe = model.moe
    if moe.latent is not None or moe.expert_bias:
        what = "latent experts" if moe.latent is not None else "biases in its experts"
        raise UsageError(f"model {model.name} has {what}, which the runtime does not run")
    for index, layer in enumerate(model.layers):
        mixer = layer.mixer
        if not isinstance(mixer, Attention):
            what = "no mixer" if mixer is None else type(mixer).__name__
            raise UsageError(
                f"model {model.name}, layer {index}: the runtime runs attention only, not {what}"
            )
        odd = {
            "sinks": mixer.sinks, "an output gate": mixer.output_gate, "biases": mixer.qkv_bias or mixer.out_bias,
            "values of another width than keys": mixer.value_dim != mixer.head_dim,
        }  # fmt: skip
        for what, has_it in odd.items():
            if has_it:
                raise UsageError(
                    f"model {model.name}, layer {index}: attention with {what} is not run by the runtime"
                )
        if isinstance(layer.ffn, DenseFfn) and layer.ffn.bias:
            raise UsageError(
                f"model {model.name}, layer {index}: a feed-forward with biases is not run by the runtime"
            )
        if isinstance(layer.ffn, MoeFfn) and layer.ffn.shared_gate:
            raise UsageError(
                f"model {model.name}, layer {index}: a gated shared expert is not run by the runtime"
            )
