"""What a layer does to each token alone: a dense feed-forward, or a mixture of experts (standard or latent).

In a latent mixture the routed experts live at a width below the model's; one shared matrix brings every token down to it
and one brings the combined result up (arXiv 2601.18089). Router and shared experts stay at the model's width.
"""

from __future__ import annotations

from dataclasses import dataclass

from .formats import bytes_of
from .mixers import Matrix, weights_in


def _mlp(width: int, intermediate: int, matrices: int) -> tuple[Matrix, ...]:
    """Up (and gate, fused with it) and down: 2 matrices without a gate (squared ReLU), 3 with one (SwiGLU)."""
    return ((width, (matrices - 1) * intermediate), (intermediate, width))


@dataclass(frozen=True, slots=True)
class DenseFfn:
    """A dense feed-forward of 2 or 3 matrices."""

    hidden: int
    intermediate: int
    gated: bool = True
    bias: bool = False

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return _mlp(self.hidden, self.intermediate, 3 if self.gated else 2)

    @property
    def other_weights(self) -> int:
        return ((2 if self.gated else 1) * self.intermediate + self.hidden) * self.bias

    @property
    def weights(self) -> int:
        return weights_in(self.matrices) + self.other_weights


@dataclass(frozen=True, slots=True)
class MoeFfn:
    """`num_experts` routed experts of which each token uses `top_k`, beside shared experts that all tokens use."""

    hidden: int
    num_experts: int
    top_k: int
    intermediate: int
    latent: int | None = None
    """Width of the routed experts in a latent mixture; None: the model's width."""
    latent_norm: bool = False
    gated: bool = True
    expert_bias: bool = False
    router_bias: bool = False
    """One number per expert: a bias of the router or the correction that balances loads."""
    shared_intermediate: int = 0
    """Width of all shared experts together; 0: none."""
    shared_gate: bool = False
    """A sigmoid gate on the shared expert (one product with a vector; Qwen2-MoE)."""

    @property
    def expert_width(self) -> int:
        """Width of what a routed expert reads and writes."""
        return self.hidden if self.latent is None else self.latent

    @property
    def expert_matrices(self) -> tuple[Matrix, ...]:
        return _mlp(self.expert_width, self.intermediate, 3 if self.gated else 2)

    @property
    def expert_bias_weights(self) -> int:
        return ((2 if self.gated else 1) * self.intermediate + self.expert_width) * self.expert_bias

    @property
    def expert_weights(self) -> int:
        """Weights of ONE routed expert, its biases included."""
        return weights_in(self.expert_matrices) + self.expert_bias_weights

    def expert_bytes(self, format: str) -> int:
        """Bytes of one routed expert: matrices in `format` with its scales, biases always in 16 bits."""
        return bytes_of(weights_in(self.expert_matrices), format) + bytes_of(self.expert_bias_weights, "bf16")

    @property
    def shared_matrices(self) -> tuple[Matrix, ...]:
        if self.shared_intermediate == 0:
            return ()
        gate: tuple[Matrix, ...] = ((self.hidden, 1),) if self.shared_gate else ()
        return (*_mlp(self.hidden, self.shared_intermediate, 3 if self.gated else 2), *gate)

    @property
    def router_weights(self) -> int:
        return self.hidden * self.num_experts + self.num_experts * self.router_bias

    @property
    def latent_weights(self) -> int:
        if self.latent is None:
            return 0
        return 2 * self.hidden * self.latent + self.latent * self.latent_norm

    @property
    def resident_weights(self) -> int:
        """Everything that is not a routed expert: router, shared experts, latent projections."""
        return self.router_weights + weights_in(self.shared_matrices) + self.latent_weights

    @property
    def weights(self) -> int:
        return self.resident_weights + self.num_experts * self.expert_weights

    def dispatch_bytes(self, tokens: int, activations: str) -> int:
        """Bytes of token copies sent to routed experts one way: tokens × top-k × width × *activation* bytes (case B16).

        What travels is activations, so the format of the weights changes nothing.
        """
        return bytes_of(tokens * self.top_k * self.expert_width, activations)


Ffn = DenseFfn | MoeFfn
