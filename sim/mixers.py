"""What a layer mixes tokens with: attention (grouped-query, sliding-window, latent), Mamba-2, linear attention.

Each mixer states its matrices (rows in × columns out, one product per token each, fused as engines fuse them),
its other weights (biases, norms, convolutions), and what it keeps: KV elements per token, or a state per sequence.
Weights and state are derived here and nowhere typed in. Checked against the parameter counts of Hugging Face's own
classes (transformers 5.24, built without memory): see `tests/unit/test_model_weights.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Matrix = tuple[int, int]
"""(inputs, outputs) of one matrix product per token."""


def weights_in(matrices: tuple[Matrix, ...]) -> int:
    """Weights of all matrices."""
    return sum(rows * columns for rows, columns in matrices)


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention; `window` limits how far back it looks (None: all of the context)."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    window: int | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "whole"] = "none"
    """A norm over each head (one `head_dim` vector for q, one for k), or over the whole projection."""
    sinks: bool = False
    """One learned logit a head (gpt-oss)."""
    output_gate: bool = False
    """The query projection also makes a gate as wide as the output (Qwen3-Next)."""

    @property
    def qkv_columns(self) -> int:
        gate = self.heads * self.value_dim if self.output_gate else 0
        return self.heads * self.head_dim + gate + self.kv_heads * (self.head_dim + self.value_dim)

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return ((self.hidden, self.qkv_columns), (self.heads * self.value_dim, self.hidden))

    @property
    def other_weights(self) -> int:
        norms = {"none": 0, "head": 2 * self.head_dim, "whole": (self.heads + self.kv_heads) * self.head_dim}
        biases = self.qkv_columns * self.qkv_bias + self.hidden * self.out_bias
        return norms[self.qk_norm] + biases + self.heads * self.sinks

    @property
    def kv_elements_per_token(self) -> int:
        return self.kv_heads * (self.head_dim + self.value_dim)

    @property
    def state_bytes_per_sequence(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek): keys and values are rebuilt from one cached latent per token."""

    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int
    bias: bool = False
    output_gate: bool = False
    """A full-rank gate on the heads' output (Kimi-K3)."""
    window: int | None = None

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        cached = self.kv_rank + self.rope_dim
        queries = self.heads * (self.nope_dim + self.rope_dim)
        value_columns = self.heads * self.value_dim
        down: tuple[Matrix, ...]
        if self.q_rank is None:
            down = ((self.hidden, queries + cached),)
        else:
            down = ((self.hidden, self.q_rank + cached), (self.q_rank, queries))
        gate: tuple[Matrix, ...] = ((self.hidden, value_columns),) if self.output_gate else ()
        return (
            *down,
            (self.kv_rank, self.heads * (self.nope_dim + self.value_dim)),
            *gate,
            (value_columns, self.hidden),
        )

    @property
    def other_weights(self) -> int:
        norms = (self.q_rank or 0) + self.kv_rank
        biases = ((self.q_rank or 0) + self.kv_rank + self.rope_dim + self.hidden) * self.bias
        return norms + biases

    @property
    def kv_elements_per_token(self) -> int:
        return self.kv_rank + self.rope_dim

    @property
    def state_bytes_per_sequence(self) -> int:
        return 0


@dataclass(frozen=True, slots=True)
class Mamba2:
    """A Mamba-2 state-space mixer: one input projection, a short convolution, a scan, an output projection."""

    hidden: int
    heads: int
    head_dim: int
    groups: int
    state: int
    conv: int
    conv_bias: bool = True
    bias: bool = False
    state_format_bytes: int = 4
    window: int | None = None

    @property
    def inner(self) -> int:
        return self.heads * self.head_dim

    @property
    def conv_channels(self) -> int:
        return self.inner + 2 * self.groups * self.state

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return ((self.hidden, self.inner + self.conv_channels + self.heads), (self.inner, self.hidden))

    @property
    def other_weights(self) -> int:
        # convolution; per head: dt_bias, A_log, D; the gated norm; projection biases
        convolution = self.conv_channels * (self.conv + self.conv_bias)
        biases = (self.inner + self.conv_channels + self.heads + self.hidden) * self.bias
        return convolution + 3 * self.heads + self.inner + biases

    @property
    def kv_elements_per_token(self) -> int:
        return 0

    @property
    def state_bytes_per_sequence(self) -> int:
        # the convolution keeps its last `conv` inputs in 16 bits, the scan its state
        return self.inner * self.state * self.state_format_bytes + self.conv_channels * self.conv * 2

    @property
    def scan_flops_per_token(self) -> int:
        # per state element: decay, outer product of input and B, sum, product with C and its sum; then convolution and D
        return 5 * self.inner * self.state + 2 * self.conv * self.conv_channels + 2 * self.inner


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta-rule linear attention: Gated DeltaNet (Qwen3-Next) and Kimi Delta Attention.

    `gate_matrices` are the products for decay, step and output gate; they differ between the two.
    """

    hidden: int
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv: int
    gate_matrices: tuple[Matrix, ...]
    gate_weights: int
    """Weights beside the gates' matrices: dt_bias, A_log, the output norm."""
    window: int | None = None

    @property
    def conv_channels(self) -> int:
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def matrices(self) -> tuple[Matrix, ...]:
        return (
            (self.hidden, self.conv_channels),
            *self.gate_matrices,
            (self.value_heads * self.value_dim, self.hidden),
        )

    @property
    def other_weights(self) -> int:
        return self.conv_channels * self.conv + self.gate_weights

    @property
    def kv_elements_per_token(self) -> int:
        return 0

    @property
    def state_bytes_per_sequence(self) -> int:
        # the state is kept in 32 bits, the convolution's last inputs in 16
        return self.value_heads * self.key_dim * self.value_dim * 4 + self.conv_channels * self.conv * 2

    @property
    def scan_flops_per_token(self) -> int:
        # per state element: decay 1, prediction kᵀS 2, rank-one update 2, read-out qᵀS 2; then the convolution
        return 7 * self.value_heads * self.key_dim * self.value_dim + 2 * self.conv * self.conv_channels


Mixer = Attention | LatentAttention | Mamba2 | LinearAttention


def mixer_weights(mixer: Mixer) -> int:
    """All weights of a mixer, without the layer's norm."""
    return weights_in(mixer.matrices) + mixer.other_weights
