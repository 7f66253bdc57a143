"""Row-wise operations between the products: norms, the router's top-k, sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ._work import Size, Work, number, stored_bytes, tidy


@dataclass(frozen=True, slots=True)
class Norm:
    """RMS norm over rows [tokens, hidden]; `residual`: the fused form that also adds and writes the residual."""

    tokens: Size
    hidden: Size
    residual: bool = False
    activations: str = "bf16"

    name: ClassVar[str] = "norm"

    @property
    def flops(self) -> Work:
        """Square, sum, scale, weight: 4 per element, 5 with the residual's addition."""
        return tidy(number(self.tokens) * number(self.hidden) * (5 if self.residual else 4))

    @property
    def bytes(self) -> Work:
        """Row in and out (twice with a residual), and the weight vector."""
        rows = number(self.tokens) * number(self.hidden) * (4 if self.residual else 2)
        return tidy(stored_bytes(rows + number(self.hidden), self.activations))

    @property
    def arithmetic(self) -> str:
        return "fp32"


@dataclass(frozen=True, slots=True)
class RouterTopK:
    """Softmax over all experts in fp32 and the K largest: logits [tokens, num_experts] → weights and ids [tokens, K]."""

    tokens: Size
    num_experts: Size
    top_k: Size

    name: ClassVar[str] = "router_top_k"

    @property
    def flops(self) -> Work:
        """Maximum, difference, exponential, sum, quotient: 5 per expert; each of the K choices looks at all N once."""
        return tidy(number(self.tokens) * number(self.num_experts) * (5.0 + number(self.top_k)))

    @property
    def bytes(self) -> Work:
        """fp32 logits in, fp32 weights and int32 ids out."""
        return tidy(4.0 * number(self.tokens) * (number(self.num_experts) + 2.0 * number(self.top_k)))

    @property
    def arithmetic(self) -> str:
        return "fp32"


@dataclass(frozen=True, slots=True)
class Sampling:
    """One id per row of logits [rows, vocab]: softmax and a draw."""

    rows: Size
    vocab: Size
    logits: str = "fp32"

    name: ClassVar[str] = "sampling"

    @property
    def flops(self) -> Work:
        """Maximum, difference, exponential, sum, quotient, running sum: 6 per logit."""
        return tidy(6.0 * number(self.rows) * number(self.vocab))

    @property
    def bytes(self) -> Work:
        """Logits read once; one int64 id out per row."""
        return tidy(
            stored_bytes(number(self.rows) * number(self.vocab), self.logits) + 8.0 * number(self.rows)
        )

    @property
    def arithmetic(self) -> str:
        return "fp32"
