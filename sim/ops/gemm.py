"""A dense matrix product: y[M, N] = x[M, K] · w[N, K]ᵀ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ._work import Size, Work, number, stored_bytes, tidy, wider


@dataclass(frozen=True, slots=True)
class Gemm:
    """`m` rows (tokens), `n` outputs, `k` inputs. Weights [n, k] in one format, activations in and out in another."""

    m: Size
    n: Size
    k: Size
    weights: str = "bf16"
    activations: str = "bf16"
    out: str = "bf16"

    name: ClassVar[str] = "gemm"

    @property
    def flops(self) -> Work:
        """2·m·n·k: one multiplication and one addition per weight and row."""
        return tidy(2.0 * number(self.m) * number(self.n) * number(self.k))

    @property
    def bytes(self) -> Work:
        """Weights and inputs read once, outputs written once."""
        m, n, k = number(self.m), number(self.n), number(self.k)
        read = stored_bytes(n * k, self.weights) + stored_bytes(m * k, self.activations)
        return tidy(read + stored_bytes(m * n, self.out))

    @property
    def arithmetic(self) -> str:
        return wider(self.weights, self.activations)
