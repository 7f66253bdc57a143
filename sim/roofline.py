"""Costs from a hardware sheet: each part of a pass takes the longer of its memory time and its arithmetic time.

time = max(bytes ÷ memory bandwidth, FLOPs ÷ dense peak), the roofline (Williams, Waterman and Patterson 2009).
Launches, synchronisation and imperfect kernels are left out, so these times are lower bounds; a measured profile
replaces them. Matrices outside the routed experts are in 16 bits. FLOPs of a matrix product: 2 × weights × tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .costs import CostTable
from .ffn import MoeFfn
from .formats import number_format
from .hardware import HardwareSpec
from .mixers import Attention, LatentAttention, LinearAttention, Mamba2, Mixer, weights_in
from .model import Layer, ModelSpec

_TWO_BYTES = 2  # of a 16-bit value
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Load:
    """What the passes ask of one layer. All [P]."""

    tokens: Floats
    context_sum: Floats
    """Sum over the pass's tokens of the tokens each attends to."""
    sequences: Floats
    """Sequences in the pass: each reads its KV cache and its recurrent state once."""


@dataclass(frozen=True, slots=True)
class _Roof:
    bytes_per_s: float
    flops_per_s: float

    def seconds(self, bytes_moved: Floats | float, flops: Floats | float) -> Floats:
        return np.maximum(np.asarray(bytes_moved) / self.bytes_per_s, np.asarray(flops) / self.flops_per_s)


def roofline_costs(
    model: ModelSpec,
    hardware: HardwareSpec,
    *,
    weights: str,
    activations: str = "bf16",
    layer_ids: Sequence[int],
    tokens_P: NDArray[np.int64],
    context_sum_P: NDArray[np.int64],
    head_rows_P: NDArray[np.int64],
    max_tokens: int,
) -> CostTable:
    """Costs of P passes through the MoE layers `layer_ids` (and what lies between them), in whole nanoseconds.

    `weights` is the format of the routed experts; `head_rows_P` the rows of each pass whose logits are wanted, taken
    as its number of sequences. Raises `UsageError` where the layers are not the model's, or a peak is not stated.
    """
    layers = model.match_layers(layer_ids)
    arithmetic = number_format(activations).computes_as
    roof = _Roof(hardware.memory_bandwidth.value, hardware.peak(arithmetic).value)
    load = _Load(*(array.astype(float) for array in (tokens_P, context_sum_P, np.maximum(head_rows_P, 1))))
    classes, layer_class = _classes(model, layers)
    moe = model.moe
    head = _seconds_of_head(model, roof, load)
    before, resident, after = ([] for _ in range(3))
    for between, own, trailing, is_last in classes:
        router = moe.router_weights
        time = sum((_seconds_of_layer(layer, roof, load) for layer in between), np.zeros(len(load.tokens)))
        time = time + _seconds_of_mixer(own, roof, load) + _seconds_of_weights(router, roof, load.tokens)
        before.append(time)
        shared = weights_in(moe.shared_matrices)
        latent = moe.latent_weights / 2
        resident.append(_seconds_of_weights(shared, roof, load.tokens) + _seconds_of_weights(latent, roof, load.tokens))
        ends = _seconds_of_weights(latent, roof, load.tokens)
        if is_last:
            ends = ends + sum((_seconds_of_layer(layer, roof, load) for layer in trailing), np.zeros(len(load.tokens)))
            ends = ends + head
        after.append(ends)
    expert_bytes = model.expert_bytes(weights)
    counts = np.arange(max_tokens + 1, dtype=float)
    moved = expert_bytes + counts * 2 * moe.expert_width * _TWO_BYTES
    expert = roof.seconds(moved, 2.0 * moe.expert_weights * counts)
    expert[0] = 0.0
    number = len(classes)
    link = hardware.link_latency.value + expert_bytes / hardware.link_bandwidth.value
    storage = hardware.storage_latency.value + expert_bytes / hardware.storage_bandwidth.value
    return CostTable(
        layer_class_L=layer_class,
        before_ns_PC=_nanoseconds(np.stack(before, axis=1)),
        resident_ns_PC=_nanoseconds(np.stack(resident, axis=1)),
        expert_ns_CN=np.tile(_nanoseconds(expert), (number, 1)),
        after_ns_PC=_nanoseconds(np.stack(after, axis=1)),
        copy_ns_C=np.full(number, max(1, int(_nanoseconds(np.array(link)))), np.int64),
        storage_ns_C=np.full(number, max(1, int(_nanoseconds(np.array(storage)))), np.int64),
        expert_bytes_C=np.full(number, expert_bytes, np.int64),
        copy_engines=int(hardware.copy_engines.value),
        source=f"roofline on the sheet of {hardware.name}: a lower bound, launches and kernel losses left out",
        provenance=_provenance(model, hardware, weights, arithmetic),
    )


_Class = tuple[tuple[Layer, ...], Mixer | None, tuple[Layer, ...], bool]


def _classes(model: ModelSpec, layers: Sequence[int]) -> tuple[list[_Class], NDArray[np.int32]]:
    """MoE layers with equal work share a class: (layers since the one before, own mixer, trailing layers, is last)."""
    found: dict[_Class, int] = {}
    of_layer = []
    previous = -1
    for layer in layers:
        is_last = layer == layers[-1]
        between = model.layers[previous + 1 : layer]
        trailing = model.layers[layer + 1 :] if is_last else ()
        key = (tuple(between), model.layers[layer].mixer, tuple(trailing), is_last)
        of_layer.append(found.setdefault(key, len(found)))
        previous = layer
    return list(found), np.array(of_layer, np.int32)


def _seconds_of_weights(weights: float, roof: _Roof, tokens: Floats) -> Floats:
    """One read of 16-bit weights, and their product with every token."""
    return roof.seconds(weights * _TWO_BYTES, 2.0 * weights * tokens)


def _seconds_of_layer(layer: Layer, roof: _Roof, load: _Load) -> Floats:
    """A whole layer without routed experts (or only a mixer, in hybrids)."""
    time = _seconds_of_mixer(layer.mixer, roof, load)
    if layer.ffn is not None and not isinstance(layer.ffn, MoeFfn):
        time = time + _seconds_of_weights(layer.ffn.weights, roof, load.tokens)
    return time


def _seconds_of_mixer(mixer: Mixer | None, roof: _Roof, load: _Load) -> Floats:
    """Projections, then attention over the cache or the scan over the state.

    A sequence's cache is read once a pass: context sum × sequences ÷ tokens elements, which is the context itself
    for decoded tokens and half a prompt's length for a prompt.
    """
    if mixer is None:
        return np.zeros(len(load.tokens))
    projections = _seconds_of_weights(weights_in(mixer.matrices), roof, load.tokens)
    if isinstance(mixer, (Mamba2, LinearAttention)):
        state = 2.0 * mixer.state_bytes_per_sequence * load.sequences
        return projections + roof.seconds(state, mixer.scan_flops_per_token * load.tokens)
    context = load.context_sum
    if mixer.window is not None:
        context = np.minimum(context, load.tokens * mixer.window)
    read = context * load.sequences / load.tokens * mixer.kv_elements_per_token * _TWO_BYTES
    return projections + roof.seconds(read, _attention_flops_per_pair(mixer) * context)


def _attention_flops_per_pair(mixer: Attention | LatentAttention) -> float:
    """Scores and weighted sum of one query with one key; latent attention works on the cached latent itself."""
    if isinstance(mixer, LatentAttention):
        return 2.0 * mixer.heads * (2 * mixer.kv_rank + mixer.rope_dim)
    return 4.0 * mixer.heads * mixer.head_dim


def _seconds_of_head(model: ModelSpec, roof: _Roof, load: _Load) -> Floats:
    return _seconds_of_weights(model.vocab * model.hidden, roof, load.sequences)


def _nanoseconds(seconds: Floats) -> NDArray[np.int64]:
    """Rounded up: no work is free."""
    return np.ceil(np.round(seconds * 1e9, 6)).astype(np.int64)


def _provenance(
    model: ModelSpec, hardware: HardwareSpec, weights: str, arithmetic: str
) -> tuple[dict[str, object], ...]:
    """The numbers these times stand on."""
    used = {
        "device memory bandwidth": hardware.memory_bandwidth,
        f"peak {hardware.peak_name(arithmetic)} (dense)": hardware.peak(arithmetic),
        f"host link bandwidth ({hardware.host_link})": hardware.link_bandwidth,
        "host link latency": hardware.link_latency,
        "copy engines to the device": hardware.copy_engines,
        f"storage bandwidth ({hardware.storage})": hardware.storage_bandwidth,
        "storage latency": hardware.storage_latency,
    }
    found: list[dict[str, object]] = [
        {"name": name, "value": q.value, "unit": q.unit, "kind": q.kind, "source": q.source} for name, q in used.items()
    ]
    found.append(
        {
            "name": f"one routed expert in {weights}",
            "value": model.expert_bytes(weights),
            "unit": "bytes",
            "kind": "derived",
            "source": f"shapes of {model.name}: {model.source}",
        }
    )
    return tuple(found)
