"""The routed experts of a mixture (a grouped matrix product), and the whole mixture layer, standard or latent.

Formulas: shared `reference/latentmoe.md` of arXiv 2601.18089. Widths: d hidden, ℓ latent, m of an expert; N experts,
K per token, T tokens; g matrices per expert, 3 with a gate (SwiGLU), 2 without (squared ReLU).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ._work import Floats, Size, Work, number, stored_bytes, tidy, wider
from .loads import expected_loads


@dataclass(frozen=True, slots=True)
class GroupedGemm:
    """The routed experts alone, on one rank: gather, up (and gate), activation, down, weighted sum.

    `hidden` is the width that the experts read and write (ℓ in a latent mixture), `width` that inside one expert.
    With `tp` ranks each holds `width / tp` of every expert, with `ep` ranks each holds `num_experts / ep` whole experts
    and serves the pairs routed to them. `distribution` says how tokens fall on experts (`sim.ops.loads`); `distinct`
    (experts touched on this rank) and `pairs` (token-expert pairs on this rank) replace its expectation by a count.
    """

    tokens: Size
    hidden: Size
    width: Size
    num_experts: Size
    top_k: Size
    gated: bool = True
    tp: Size = 1
    ep: Size = 1
    distribution: str = "uniform"
    weights: str = "bf16"
    activations: str = "bf16"
    distinct: Work | None = None
    pairs: Work | None = None

    name: ClassVar[str] = "moe"

    @property
    def matrices(self) -> int:
        """Matrices per expert, g."""
        return 3 if self.gated else 2

    @property
    def expected_distinct(self) -> Floats:
        """Experts of this rank that at least one token uses: `distinct` where counted, else its expectation."""
        if self.distinct is not None:
            return number(self.distinct)
        return expected_loads(self.tokens, self.num_experts, self.top_k, self.ep, self.distribution)[0]

    @property
    def expected_pairs(self) -> Floats:
        """Token-expert pairs that this rank computes: `pairs` where counted, else T·K / EP of the balanced share."""
        if self.pairs is not None:
            return number(self.pairs)
        return number(self.tokens) * number(self.top_k) / number(self.ep)

    @property
    def flops(self) -> Work:
        """2·g·pairs·hidden·width / TP."""
        per_pair = 2.0 * self.matrices * number(self.hidden) * number(self.width) / number(self.tp)
        return tidy(self.expected_pairs * per_pair)

    @property
    def weight_bytes(self) -> Work:
        """Weights of the touched experts, scales included: E(T)·g·hidden·width / TP."""
        one = self.matrices * number(self.hidden) * number(self.width) / number(self.tp)
        return tidy(stored_bytes(self.expected_distinct * one, self.weights))

    @property
    def bytes(self) -> Work:
        """Touched experts' weights, and each token's row in and out once."""
        rows = np.minimum(number(self.tokens), self.expected_pairs)
        return tidy(
            number(self.weight_bytes) + 2.0 * stored_bytes(rows * number(self.hidden), self.activations)
        )

    @property
    def arithmetic(self) -> str:
        return wider(self.weights, self.activations)


@dataclass(frozen=True, slots=True)
class MoeLayer:
    """A whole mixture layer: router, routed experts, shared expert, and the two projections of a latent mixture.

    `hidden` is the model's width d; `latent` is ℓ, None in a standard mixture. Router and shared expert work at d.
    """

    tokens: Size
    hidden: Size
    width: Size
    num_experts: Size
    top_k: Size
    latent: Size | None = None
    gated: bool = True
    shared_width: Size = 0
    tp: Size = 1
    ep: Size = 1
    distribution: str = "uniform"
    weights: str = "bf16"
    activations: str = "bf16"
    distinct: Work | None = None
    pairs: Work | None = None

    name: ClassVar[str] = "moe_layer"

    @property
    def routed(self) -> GroupedGemm:
        """The grouped product inside it: what published MoE tables measure."""
        return GroupedGemm(
            self.tokens, self.hidden if self.latent is None else self.latent, self.width, self.num_experts, self.top_k,
            gated=self.gated, tp=self.tp, ep=self.ep, distribution=self.distribution, weights=self.weights,
            activations=self.activations, distinct=self.distinct, pairs=self.pairs,
        )  # fmt: skip

    @property
    def router_flops(self) -> Work:
        """2·T·d·N."""
        return tidy(2.0 * number(self.tokens) * number(self.hidden) * number(self.num_experts))

    @property
    def latent_flops(self) -> Work:
        """Down and up once per token: 2·T·d·ℓ each; nothing in a standard mixture."""
        latent = number(0 if self.latent is None else self.latent)
        return tidy(4.0 * number(self.tokens) * number(self.hidden) * latent)

    @property
    def shared_flops(self) -> Work:
        """2·g·T·d·m_shared / TP."""
        per_token = (
            2.0 * self.routed.matrices * number(self.hidden) * number(self.shared_width) / number(self.tp)
        )
        return tidy(number(self.tokens) * per_token)

    @property
    def flops(self) -> Work:
        parts = (self.routed.flops, self.router_flops, self.latent_flops, self.shared_flops)
        return tidy(np.asarray(sum(number(part) for part in parts)))

    @property
    def resident_weight_bytes(self) -> Work:
        """What every token uses: router and latent projections in 16 bits, the shared expert in `weights`."""
        hidden = number(self.hidden)
        router = stored_bytes(hidden * number(self.num_experts), "bf16")
        latent = stored_bytes(2.0 * hidden * number(0 if self.latent is None else self.latent), "bf16")
        shared = self.routed.matrices * hidden * number(self.shared_width) / number(self.tp)
        return tidy(router + latent + stored_bytes(shared, self.weights))

    @property
    def bytes(self) -> Work:
        """All weights used once, and each token's row of width d in and out once."""
        rows = 2.0 * stored_bytes(number(self.tokens) * number(self.hidden), self.activations)
        return tidy(number(self.routed.weight_bytes) + number(self.resident_weight_bytes) + rows)

    @property
    def arithmetic(self) -> str:
        return self.routed.arithmetic
