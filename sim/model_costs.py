"""What each part of each pass of a model costs: its layers' products, mixers and experts, at given prices.

Prices come from a hardware sheet (`roofline.py`) or from measurements (`profile_prices.py`). Shape letters: P passes,
C classes of layers, N tokens that one expert serves.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from .costs import CostTable
from .ffn import DenseFfn, MoeFfn
from .formats import number_format
from .model import Layer, ModelSpec
from .pass_sizes import PassSizes, Seconds
from .roofline import RooflinePrices


class _Parts:
    """Seconds of the parts of each distinct layer, made once."""

    def __init__(self, prices: RooflinePrices, passes: PassSizes, weights: str, resident: str) -> None:
        self.prices, self.passes, self.weights, self.resident = prices, passes, weights, resident
        self._whole: dict[Layer, Seconds] = {}
        self._until: dict[Layer, Seconds] = {}

    def until_routed(self, layer: Layer) -> Seconds:
        """From the layer's start until its experts are known: mixer and router."""
        if layer not in self._until:
            total = np.zeros_like(self.passes.tokens)
            if layer.mixer is not None:
                total = total + self.prices.mixer(layer.mixer, self.passes, self.resident)
            if layer.moe is not None:
                router = ((layer.moe.hidden, layer.moe.num_experts),)
                total = total + self.prices.products(self.passes.tokens, router, "bf16")
            self._until[layer] = total
        return self._until[layer]

    def beside(self, moe: MoeFfn) -> Seconds:
        """Needs no routed expert: shared experts, and the way down to the latent width."""
        matrices = list(moe.shared_matrices)
        if moe.latent is not None:
            matrices.append((moe.hidden, moe.latent))
        return self.prices.products(self.passes.tokens, matrices, self.resident)

    def combine(self, moe: MoeFfn) -> Seconds:
        """Weighted sum of the experts' outputs, and the way up from the latent width."""
        tokens = self.passes.tokens
        total = self.prices.moved(tokens * (moe.top_k + 1) * moe.expert_width)
        if moe.latent is not None:
            total = total + self.prices.products(tokens, ((moe.latent, moe.hidden),), self.resident)
        return total

    def whole(self, layer: Layer) -> Seconds:
        """A layer that the trace says nothing about: a mixture's experts are taken to be on the device."""
        if layer not in self._whole:
            total = self.until_routed(layer)
            if layer.moe is not None:
                experts = self.prices.resident_experts(layer.moe, self.passes.tokens, self.weights)
                total = total + self.beside(layer.moe) + experts + self.combine(layer.moe)
            elif isinstance(layer.ffn, DenseFfn):
                total = total + self.prices.products(self.passes.tokens, layer.ffn.matrices, self.resident)
            self._whole[layer] = total
        return self._whole[layer]


def model_costs(
    model: ModelSpec,
    prices: RooflinePrices,
    *,
    weights: str,
    resident_weights: str = "bf16",
    layer_ids: Sequence[int],
    tokens_P: NDArray[np.int64],
    context_sum_P: NDArray[np.int64],
    head_rows_P: NDArray[np.int64],
    max_tokens: int,
) -> CostTable:
    """The time of every part of every pass, at the given prices.

    Args:
        weights: format of routed experts; `resident_weights` of all other matrices (router and head stay bf16).
        layer_ids: the model's own numbers of the MoE layers that the trace holds, ascending. Other MoE layers are
            charged with all experts on the device, under uniform routing.
        tokens_P: tokens in each pass; context_sum_P: their contexts, summed; head_rows_P: rows that need logits.
        max_tokens: most tokens that one expert can get in a pass.

    Raises `UsageError` for a dense model, layers that are no MoE layers of it, or arithmetic the sheet has no peak for.
    """
    _check(model, layer_ids, tokens_P, context_sum_P, head_rows_P, max_tokens)
    passes = PassSizes(tokens_P, context_sum_P, head_rows_P)
    parts = _Parts(prices, passes, weights, resident_weights)
    moe, class_of = model.moe, []
    classes: dict[tuple[object, ...], int] = {}
    before: list[Seconds] = []
    after: list[Seconds] = []
    previous, last = -1, layer_ids[-1]
    trailing = _sum(parts, model.layers[last + 1 :]) + prices.products(
        passes.head_rows, ((model.hidden, model.vocab),), "bf16"
    )
    combine = parts.combine(moe)
    for layer_id in layer_ids:
        segment = model.layers[previous + 1 : layer_id]
        key = (segment, model.layers[layer_id], previous < 0, layer_id == last)
        if key not in classes:
            classes[key] = len(before)
            lead = prices.moved(2.0 * passes.tokens * model.hidden) if previous < 0 else 0.0  # embedding rows
            before.append(lead + _sum(parts, segment) + parts.until_routed(model.layers[layer_id]))
            after.append(combine + trailing if layer_id == last else combine)
        class_of.append(classes[key])
        previous = layer_id
    expert = _nanoseconds(prices.products(np.arange(max_tokens + 1.0), moe.expert_matrices, weights))
    expert[1:] = np.maximum(expert[1:], 1)
    size = model.expert_bytes(weights)
    copy_s, storage_s = prices.copy_s(size), prices.storage_s(size)
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
        copy_engines=int(prices.hardware.copy_engines.value),
        source=prices.source(),
        provenance=_provenance(prices, size, weights, resident_weights),
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


def _provenance(
    prices: RooflinePrices, size: int, weights: str, resident: str
) -> tuple[dict[str, object], ...]:
    rows = prices.provenance()
    shape = "shape of the model"
    rows.append(
        {"name": f"one expert in {weights}", "value": size, "unit": "bytes", "kind": "derived", "source": shape}
    )
    roles = {"routed experts": weights, "other matrices": resident, "activations and KV cache": prices.activations.name}
    for role, name in roles.items():
        form = number_format(name)
        row = {"name": f"{role}: {form.name}", "value": float(form.bits), "unit": "bits per value"}
        rows.append({**row, "kind": "format", "source": form.source})
    return tuple(rows)
