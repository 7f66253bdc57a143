"""Times from a hardware sheet alone: each product takes what its bytes or its operations take, whichever is longer.

A floor, no forecast: kernels reach less than the sheet, launches and norms and softmax cost nothing here. Good for
what offloading is about (bytes over links against bytes of device memory) until a measured profile takes its place.

Shape letters: P passes, C classes of layers, N tokens that one expert serves. What an attention layer reads depends on
who shares a pass: T tokens of S sequences whose contexts sum to A. Each sequence is taken to bring T / S consecutive
tokens; exact for prompts alone, for decoding, and for equal chunks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .costs import CostTable
from .ffn import DenseFfn, MoeFfn
from .formats import WEIGHT_FORMATS, number_format
from .hardware import HardwareSpec, Quantity
from .mixers import Attention, LatentAttention, LinearAttention, Mamba2, Matrix, Mixer
from .model import Layer, ModelSpec

Seconds = NDArray[np.float64]


class _Passes:
    """Each pass in numbers: tokens, sequences, contexts, rows that need logits. All [P] floats."""

    def __init__(self, tokens: NDArray[np.int64], context_sum: NDArray[np.int64], head_rows: NDArray[np.int64]) -> None:
        self.tokens = tokens.astype(np.float64)
        self.head_rows = head_rows.astype(np.float64)
        # every sequence of a pass needs the logits of its last row, so rows with logits count sequences
        self.sequences = np.maximum(self.head_rows, 1.0)
        self.rows = self.tokens / self.sequences
        mean = context_sum / np.maximum(self.tokens, 1.0)
        self.first = np.maximum(mean - (self.rows - 1) / 2, 1.0)
        self.last = mean + (self.rows - 1) / 2
        self.context_sum = context_sum.astype(np.float64)

    def attended(self, window: int | None) -> Seconds:
        """Pairs of a token and one it attends to."""
        if window is None:
            return self.context_sum
        inside = np.clip(window - self.first + 1, 0, self.rows)  # rows whose context is no longer than the window
        pairs = inside * (self.first + (inside - 1) / 2) + (self.rows - inside) * window
        return np.asarray(self.sequences * pairs)

    def cached(self, window: int | None) -> Seconds:
        """Distinct cached tokens that the pass reads."""
        reach = self.last if window is None else np.minimum(self.last, window + self.rows - 1)
        return np.asarray(self.sequences * reach)


class _Roof:
    """The sheet as a function from bytes and operations to seconds."""

    def __init__(self, hardware: HardwareSpec, activations: str) -> None:
        self.hardware = hardware
        self.bandwidth = hardware.memory_bandwidth.value
        self.activations = number_format(activations)
        self.activation_bytes = float(self.activations.bits) / 8
        self.used: dict[str, Quantity] = {"device memory bandwidth": hardware.memory_bandwidth}

    def peak(self, arithmetic: str) -> float:
        quantity = self.hardware.peak(arithmetic)
        self.used[f"peak {self.hardware.peak_name(arithmetic)} for {arithmetic}"] = quantity
        return quantity.value

    def longer(self, num_bytes: Seconds, flops: Seconds, arithmetic: str) -> Seconds:
        return np.maximum(num_bytes / self.bandwidth, flops / self.peak(arithmetic))

    def products(self, tokens: Seconds, matrices: Sequence[Matrix], weights: str) -> Seconds:
        """One product after another: each reads its weights once, and its activations in and out."""
        total = np.zeros_like(tokens)
        busy = tokens > 0
        weight_bytes = float(WEIGHT_FORMATS[number_format(weights).name]) / 8
        for rows, columns in matrices:
            moved = rows * columns * weight_bytes * busy + tokens * (rows + columns) * self.activation_bytes
            total += self.longer(moved, 2.0 * rows * columns * tokens, number_format(weights).computes_as)
        return total

    def moved(self, elements: Seconds) -> Seconds:
        return elements * self.activation_bytes / self.bandwidth

    def attention(self, mixer: Attention | LatentAttention, passes: _Passes) -> Seconds:
        """Scores and weighted sums; keys and values are read once a pass and written once a token."""
        tokens, pairs, cached = passes.tokens, passes.attended(mixer.window), passes.cached(mixer.window)
        if isinstance(mixer, Attention):
            flops = 2.0 * mixer.heads * (mixer.head_dim + mixer.value_dim) * pairs
            row = mixer.heads * (mixer.head_dim + mixer.value_dim)
        else:
            heads, rank, rope = mixer.heads, mixer.kv_rank, mixer.rope_dim
            wide = mixer.nope_dim + mixer.value_dim
            absorbed = 2.0 * heads * (2 * rank + rope) * pairs  # scores on the latent itself: best for decoding
            rebuilt = 2.0 * heads * (wide + rope) * pairs  # keys and values of cached tokens made again: for prompts
            rebuilt = rebuilt + 2.0 * rank * heads * wide * np.maximum(cached - tokens, 0.0)
            flops = np.minimum(absorbed, rebuilt)
            row = heads * (wide + rope)
        elements = (cached + tokens) * mixer.kv_elements_per_token + tokens * row
        return self.longer(elements * self.activation_bytes, flops, self.activations.computes_as)

    def scan(self, mixer: Mamba2 | LinearAttention, passes: _Passes) -> Seconds:
        """A recurrence: each sequence's state is read and written once a pass."""
        num_bytes = 2.0 * mixer.state_bytes_per_sequence * passes.sequences
        num_bytes = num_bytes + passes.tokens * mixer.conv_channels * self.activation_bytes
        return self.longer(num_bytes, mixer.scan_flops_per_token * passes.tokens, self.activations.computes_as)

    def mixer(self, mixer: Mixer, passes: _Passes, weights: str) -> Seconds:
        inner = (
            self.scan(mixer, passes) if isinstance(mixer, Mamba2 | LinearAttention) else self.attention(mixer, passes)
        )
        return self.products(passes.tokens, mixer.matrices, weights) + inner


class _Parts:
    """Seconds of the parts of each distinct layer, made once."""

    def __init__(self, roof: _Roof, passes: _Passes, weights: str, resident: str) -> None:
        self.roof, self.passes, self.weights, self.resident = roof, passes, weights, resident
        self._whole: dict[Layer, Seconds] = {}
        self._until: dict[Layer, Seconds] = {}

    def until_routed(self, layer: Layer) -> Seconds:
        """From the layer's start until its experts are known: mixer and router."""
        if layer not in self._until:
            total = np.zeros_like(self.passes.tokens)
            if layer.mixer is not None:
                total = total + self.roof.mixer(layer.mixer, self.passes, self.resident)
            if layer.moe is not None:
                router = ((layer.moe.hidden, layer.moe.num_experts),)
                total = total + self.roof.products(self.passes.tokens, router, "bf16")
            self._until[layer] = total
        return self._until[layer]

    def beside(self, moe: MoeFfn) -> Seconds:
        """Needs no routed expert: shared experts, and the way down to the latent width."""
        matrices = list(moe.shared_matrices)
        if moe.latent is not None:
            matrices.append((moe.hidden, moe.latent))
        return self.roof.products(self.passes.tokens, matrices, self.resident)

    def combine(self, moe: MoeFfn) -> Seconds:
        """Weighted sum of the experts' outputs, and the way up from the latent width."""
        tokens = self.passes.tokens
        total = self.roof.moved(tokens * (moe.top_k + 1) * moe.expert_width)
        if moe.latent is not None:
            total = total + self.roof.products(tokens, ((moe.latent, moe.hidden),), self.resident)
        return total

    def whole(self, layer: Layer) -> Seconds:
        """A layer that the trace says nothing about: a mixture's experts are taken to be on the device."""
        if layer not in self._whole:
            total = self.until_routed(layer)
            if layer.moe is not None:
                total = total + self.beside(layer.moe) + self._resident_experts(layer.moe) + self.combine(layer.moe)
            elif isinstance(layer.ffn, DenseFfn):
                total = total + self.roof.products(self.passes.tokens, layer.ffn.matrices, self.resident)
            self._whole[layer] = total
        return self._whole[layer]

    def _resident_experts(self, moe: MoeFfn) -> Seconds:
        tokens = self.passes.tokens
        touched = moe.num_experts * (1.0 - (1.0 - moe.top_k / moe.num_experts) ** tokens)  # uniform, independent
        each = self.roof.products(tokens * moe.top_k / np.maximum(touched, 1.0), moe.expert_matrices, self.weights)
        return touched * each


def roofline_costs(
    model: ModelSpec,
    hardware: HardwareSpec,
    *,
    weights: str,
    activations: str = "bf16",
    resident_weights: str = "bf16",
    layer_ids: Sequence[int],
    tokens_P: NDArray[np.int64],
    context_sum_P: NDArray[np.int64],
    head_rows_P: NDArray[np.int64],
    max_tokens: int,
) -> CostTable:
    """The time of every part of every pass on the sheet's roofs.

    Args:
        weights: format of routed experts; `resident_weights` of all other matrices (router and head stay bf16).
        activations: format of what flows between layers, and of the KV cache.
        layer_ids: the model's own numbers of the MoE layers that the trace holds, ascending. Other MoE layers are
            charged with all experts on the device, under uniform routing.
        tokens_P: tokens in each pass; context_sum_P: their contexts, summed; head_rows_P: rows that need logits.
        max_tokens: most tokens that one expert can get in a pass.

    Raises `UsageError` for a dense model, layers that are no MoE layers of it, or arithmetic the sheet has no peak for.
    """
    _check(model, layer_ids, tokens_P, context_sum_P, head_rows_P, max_tokens)
    roof = _Roof(hardware, activations)
    passes = _Passes(tokens_P, context_sum_P, head_rows_P)
    parts = _Parts(roof, passes, weights, resident_weights)
    moe, class_of = model.moe, []
    classes: dict[tuple[object, ...], int] = {}
    before: list[Seconds] = []
    after: list[Seconds] = []
    previous, last = -1, layer_ids[-1]
    trailing = _sum(parts, model.layers[last + 1 :]) + roof.products(
        passes.head_rows, ((model.hidden, model.vocab),), "bf16"
    )
    combine = parts.combine(moe)
    for layer_id in layer_ids:
        segment = model.layers[previous + 1 : layer_id]
        key = (segment, model.layers[layer_id], previous < 0, layer_id == last)
        if key not in classes:
            classes[key] = len(before)
            lead = roof.moved(2.0 * passes.tokens * model.hidden) if previous < 0 else 0.0  # embedding rows
            before.append(lead + _sum(parts, segment) + parts.until_routed(model.layers[layer_id]))
            after.append(combine + trailing if layer_id == last else combine)
        class_of.append(classes[key])
        previous = layer_id
    expert = _nanoseconds(roof.products(np.arange(max_tokens + 1.0), moe.expert_matrices, weights))
    expert[1:] = np.maximum(expert[1:], 1)
    size = model.expert_bytes(weights)
    copy_s = hardware.link_latency.value + size / hardware.link_bandwidth.value
    storage_s = hardware.storage_latency.value + size / hardware.storage_bandwidth.value
    count = len(before)
    return CostTable(
        layer_class_L=np.array(class_of, np.int32),
        before_ns_PC=_nanoseconds(np.column_stack(before)),
        resident_ns_PC=_nanoseconds(np.repeat(parts.beside(moe)[:, None], count, axis=1)),
        expert_ns_CN=np.tile(expert, (count, 1)),
        after_ns_PC=_nanoseconds(np.column_stack(after)),
        copy_ns_C=np.full(count, round(copy_s * 1e9), np.int64),
        storage_ns_C=np.full(count, round(storage_s * 1e9), np.int64),
        expert_bytes_C=np.full(count, size, np.int64),
        copy_engines=int(hardware.copy_engines.value),
        source=_source(hardware, roof.used),
        provenance=_provenance(hardware, roof.used, size, weights, resident_weights, activations),
    )


def _sum(parts: _Parts, layers: Sequence[Layer]) -> Seconds:
    total = np.zeros_like(parts.passes.tokens)
    for layer in layers:
        total = total + parts.whole(layer)
    return total


def _nanoseconds(seconds: Seconds) -> NDArray[np.int64]:
    return np.rint(seconds * 1e9).astype(np.int64)


def _check(
    model: ModelSpec,
    layer_ids: Sequence[int],
    tokens: NDArray[np.int64],
    context_sum: NDArray[np.int64],
    head_rows: NDArray[np.int64],
    max_tokens: int,
) -> None:
    known = set(model.moe_layer_ids)
    if not known:
        raise UsageError(f"model {model.name} is dense: it has no routed experts")
    if not layer_ids:
        raise UsageError("the trace holds no layer")
    for index, layer in enumerate(layer_ids):
        if layer not in known:
            raise UsageError(f"layer {layer} is no MoE layer of {model.name}")
        if index and layer <= layer_ids[index - 1]:
            raise UsageError(f"layer ids must ascend, got {layer} after {layer_ids[index - 1]}")
    if not len(tokens) == len(context_sum) == len(head_rows):
        raise RuntimeError(f"passes differ in length: {len(tokens)}, {len(context_sum)}, {len(head_rows)}")
    if len(tokens) and (tokens.min() < 1 or (context_sum < tokens).any() or head_rows.min() < 0):
        raise RuntimeError("every pass needs a token, and every token attends at least to itself")
    if max_tokens < 1:
        raise RuntimeError(f"max_tokens must be at least 1, got {max_tokens}")


def _all_used(hardware: HardwareSpec, used: dict[str, Quantity]) -> dict[str, Quantity]:
    return {
        **used,
        f"host link bandwidth ({hardware.host_link})": hardware.link_bandwidth,
        "host link latency": hardware.link_latency,
        "copy engines to the device": hardware.copy_engines,
        f"storage bandwidth ({hardware.storage})": hardware.storage_bandwidth,
        "storage latency": hardware.storage_latency,
    }


def _source(hardware: HardwareSpec, used: dict[str, Quantity]) -> str:
    kinds = sorted({quantity.kind for quantity in _all_used(hardware, used).values()})
    return f"roofline on {' and '.join(kinds)} numbers of {hardware.name}: a floor, real kernels take longer"


def _provenance(
    hardware: HardwareSpec, used: dict[str, Quantity], size: int, weights: str, resident: str, activations: str
) -> tuple[dict[str, object], ...]:
    rows: list[dict[str, object]] = [
        {"name": name, "value": q.value, "unit": q.unit, "kind": q.kind, "source": q.source}
        for name, q in _all_used(hardware, used).items()
    ]
    shape = "shape of the model"
    rows.append(
        {"name": f"one expert in {weights}", "value": size, "unit": "bytes", "kind": "derived", "source": shape}
    )
    roles = {"routed experts": weights, "other matrices": resident, "activations and KV cache": activations}
    for role, name in roles.items():
        form = number_format(name)
        row = {"name": f"{role}: {form.name}", "value": float(form.bits), "unit": "bits per value"}
        rows.append({**row, "kind": "format", "source": form.source})
    return tuple(rows)
