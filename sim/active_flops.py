"""What one token costs a model in arithmetic, and the expert width at which two designs cost the same.

A product with an r × c matrix is 2·r·c operations a token, one multiplication and one addition a weight. Counted are the
matrices that a token uses: of the mixers, the router, the shared experts, the latent projections, its top-k routed
experts, and the output head. Norms, biases, softmax and the embedding (a row is looked up) are not products and are left
out. These are forward passes; training costs about three times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..errors import UsageError
from .ffn import DenseFfn, MoeFfn
from .mixers import Attention, LatentAttention, Mixer, weights_in
from .model import Layer, ModelSpec
from .ops.attention import attended_pairs


@dataclass(frozen=True, slots=True)
class ActiveFlops:
    """Operations of one token in one forward pass."""

    weights: int
    """Two for each weight of each matrix that the token uses."""
    mixing: float | None = None
    """Scores and weighted sums of attention, and the scans of state-space layers, averaged over the positions of a
    sequence; None where no length of the sequence was given."""

    @property
    def total(self) -> float:
        """Both, where both are known."""
        return self.weights + (self.mixing or 0.0)


def active_flops(spec: ModelSpec, context: int | None = None) -> ActiveFlops:
    """Operations of a token of `spec`; with `context`, also those of mixing tokens in a sequence of that many.

    Raises `UsageError` for a context below 1.
    """
    if context is not None and context < 1:
        raise UsageError(f"context must be at least 1 token, got {context}")
    weights = 2 * (spec.hidden * spec.vocab + sum(_matrix_weights(layer) for layer in spec.layers))
    if context is None:
        return ActiveFlops(weights)
    return ActiveFlops(weights, sum(_mixing(layer.mixer, context) for layer in spec.layers))


def with_expert_width(spec: ModelSpec, width: int) -> ModelSpec:
    """The same model with routed experts of this intermediate width; shared experts and all else stay."""
    layers = tuple(
        replace(layer, ffn=replace(layer.moe, intermediate=width)) if layer.moe is not None else layer
        for layer in spec.layers
    )
    return replace(spec, layers=layers)


def matched_width(base: ModelSpec, design: ModelSpec, *, multiple: int = 8, within: float = 0.02) -> int:
    """The expert width, a multiple of `multiple`, at which `design` uses as many operations a token as `base`.

    Compared are the operations with weights (`ActiveFlops.weights`): mixing tokens costs the same in designs that
    share their mixers, and leaving it out makes `within` (a share of the base's operations) the stricter demand.
    The width that `design` states is not looked at. Raises `UsageError` for a dense design, and where no width comes
    within the demand, stating the gap.
    """
    if multiple < 1:
        raise UsageError(f"multiple must be at least 1, got {multiple}")
    if not design.is_moe:
        raise UsageError(
            f"model {design.name} is dense: it has no routed experts whose width could be matched"
        )
    wanted = active_flops(base).weights
    unit = active_flops(with_expert_width(design, multiple)).weights
    step = active_flops(with_expert_width(design, 2 * multiple)).weights - unit
    fixed = unit - step
    if fixed >= wanted:
        raise UsageError(
            f"{design.name} needs {fixed:,} operations a token before its first routed expert "
            f"({fixed / wanted - 1:+.1%} of the {wanted:,} of {base.name}): router, projections and mixers alone are too much"
        )
    below = math.floor((wanted - fixed) / step)
    gaps = {
        units * multiple: (fixed + units * step) / wanted - 1 for units in (below, below + 1) if units >= 1
    }
    width = min(gaps, key=lambda one: abs(gaps[one]))
    if abs(gaps[width]) > within:
        told = ", ".join(f"{one} gives {gap:+.1%}" for one, gap in gaps.items())
        raise UsageError(
            f"no expert width that is a multiple of {multiple} gives {design.name} the {wanted:,} operations a token of "
            f"{base.name} within {within:.0%}: {told}; a smaller multiple or a wider base would"
        )
    return width


def _matrix_weights(layer: Layer) -> int:
    total = weights_in(layer.mixer.matrices) if layer.mixer else 0
    match layer.ffn:
        case MoeFfn() as moe:
            latent = 0 if moe.latent is None else 2 * moe.hidden * moe.latent
            shared = weights_in(moe.shared_matrices)
            routed = moe.top_k * weights_in(moe.expert_matrices)
            return total + moe.hidden * moe.num_experts + shared + latent + routed
        case DenseFfn() as dense:
            return total + weights_in(dense.matrices)
        case None:
            return total


def _mixing(mixer: Mixer | None, context: int) -> float:
    if mixer is None:
        return 0.0
    if isinstance(mixer, Attention | LatentAttention):
        if isinstance(mixer, Attention):
            row = mixer.head_dim + mixer.value_dim
        else:  # keys and values made again for each head, as over a prompt
            row = mixer.nope_dim + mixer.rope_dim + mixer.value_dim
        pairs = float(np.asarray(attended_pairs(context, 0, mixer.window)))
        return 2.0 * mixer.heads * row * pairs / context
    return float(mixer.scan_flops_per_token)
