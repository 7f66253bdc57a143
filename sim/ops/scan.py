"""Recurrences: the Mamba-2 scan (causal or both ways) and gated delta-rule linear attention.

FLOPs per token are those of the recurrence itself (as in `sim.mixers`), which chunked kernels exceed: they trade
operations for matrix units.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ._work import Size, Work, number, stored_bytes, tidy


@dataclass(frozen=True, slots=True)
class Scan:
    """Mamba-2: H heads of `head_dim`, `groups` of B and C, `state` per group; `bidirectional` runs it both ways."""

    batch: Size
    tokens: Size
    heads: Size
    head_dim: Size
    groups: Size
    state: Size
    bidirectional: bool = False
    activations: str = "bf16"

    name: ClassVar[str] = "scan"

    @property
    def flops(self) -> Work:
        """Per state element 5: decay, outer product and its sum, product with C and its sum; D·x is 2 per channel."""
        inner = number(self.heads) * number(self.head_dim)
        rows = number(self.batch) * number(self.tokens)
        return tidy(
            rows * (5.0 * inner * number(self.state) + 2.0 * inner) * (2 if self.bidirectional else 1)
        )

    @property
    def bytes(self) -> Work:
        """x, B, C and the step sizes in, y out; causal: the fp32 state in and out once a sequence."""
        inner = number(self.heads) * number(self.head_dim)
        per_token = 2.0 * inner + 2.0 * number(self.groups) * number(self.state) + number(self.heads)
        moved = stored_bytes(number(self.batch) * number(self.tokens) * per_token, self.activations)
        state = 2.0 * 4.0 * number(self.batch) * inner * number(self.state)
        return tidy(moved + (0.0 if self.bidirectional else state))

    @property
    def arithmetic(self) -> str:
        return self.activations


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta rule (Gated DeltaNet, Kimi Delta Attention): a state of key_dim × value_dim per value head."""

    batch: Size
    tokens: Size
    key_heads: Size
    value_heads: Size
    key_dim: Size
    value_dim: Size
    activations: str = "bf16"

    name: ClassVar[str] = "linear_attention"

    @property
    def flops(self) -> Work:
        """Per state element 7: decay 1, prediction 2, rank-one update 2, read-out 2."""
        state = number(self.value_heads) * number(self.key_dim) * number(self.value_dim)
        return tidy(7.0 * number(self.batch) * number(self.tokens) * state)

    @property
    def bytes(self) -> Work:
        """Queries, keys, values and two gates in, outputs out; the fp32 state in and out once a sequence."""
        values = number(self.value_heads) * number(self.value_dim)
        keys = number(self.key_heads) * number(self.key_dim)
        per_token = 2.0 * keys + 2.0 * values + 2.0 * number(self.value_heads)
        moved = stored_bytes(number(self.batch) * number(self.tokens) * per_token, self.activations)
        state = 8.0 * number(self.batch) * values * number(self.key_dim)
        return tidy(np.asarray(moved + state))

    @property
    def arithmetic(self) -> str:
        return self.activations
