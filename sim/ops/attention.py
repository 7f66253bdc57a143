"""Attention over a prompt (prefill) and over a cache, one new token a sequence (decode); grouped-query, window, MLA.

Multi-head latent attention in its absorbed form is attention with one key-value head whose key row, `kv_rank + rope_dim`
wide, holds the value row as its first `kv_rank` elements: `shared_kv`. `mla()` builds it from the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ._work import Floats, Size, Work, number, stored_bytes, tidy, wider


def attended_pairs(new: Size, prefix: Size, window: Size | None) -> Floats:
    """Pairs (token, token it attends to) of one sequence: `new` tokens after `prefix`, causal, 0 or None: no window.

    Token i of 1…new attends to min(prefix + i, window) tokens, itself included.
    """
    n, p = number(new), number(prefix)
    w = number(0 if window is None else window)
    w = np.where(w > 0, w, np.inf)
    inside = np.clip(w - p, 0.0, n)  # tokens whose whole context fits into the window
    beyond = np.where(n > inside, (n - inside) * np.where(np.isinf(w), 0.0, w), 0.0)
    return np.asarray(inside * p + inside * (inside + 1.0) / 2.0 + beyond)


def cached_tokens(new: Size, prefix: Size, window: Size | None) -> Floats:
    """Distinct tokens of one sequence whose keys and values are read."""
    n, p = number(new), number(prefix)
    w = number(0 if window is None else window)
    return np.asarray(np.where(w > 0, np.minimum(p + n, w + n - 1.0), p + n))


@dataclass(frozen=True, slots=True)
class PrefillAttention:
    """`batch` sequences of `tokens` new tokens each after `prefix` cached ones; causal. Window 0 or None: no window."""

    batch: Size
    tokens: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    value_dim: Size | None = None
    window: Size | None = None
    prefix: Size = 0
    causal: bool = True
    shared_kv: bool = False
    activations: str = "bf16"
    kv_cache: str = "bf16"

    name: ClassVar[str] = "attention_prefill"

    @classmethod
    def mla(
        cls, batch: Size, tokens: Size, heads: Size, nope_dim: Size, rope_dim: Size, value_dim: Size, *,
        prefix: Size = 0, activations: str = "bf16", kv_cache: str = "bf16",
    ) -> PrefillAttention:  # fmt: skip
        """MLA over a prompt: keys and values are rebuilt per head, so every head has its own."""
        return cls(batch, tokens, heads, heads, _sum(nope_dim, rope_dim), value_dim, prefix=prefix,
                   activations=activations, kv_cache=kv_cache)  # fmt: skip

    @property
    def _row(self) -> Floats:
        return _row(self.head_dim, self.value_dim)

    @property
    def flops(self) -> Work:
        """2·heads·(head_dim + value_dim) per pair: scores and weighted sum. Without a mask every pair counts."""
        if self.causal:
            pairs = attended_pairs(self.tokens, self.prefix, self.window)
        else:
            pairs = number(self.tokens) * (number(self.tokens) + number(self.prefix))
        return tidy(2.0 * number(self.batch) * number(self.heads) * self._row * pairs)

    @property
    def bytes(self) -> Work:
        """Queries in, outputs out, keys and values of the attended tokens read once."""
        queries = number(self.batch) * number(self.tokens) * number(self.heads) * self._row
        cached = number(self.batch) * cached_tokens(self.tokens, self.prefix, self.window)
        kv = cached * number(self.kv_heads) * _cached_row(self.head_dim, self.value_dim, self.shared_kv)
        return tidy(stored_bytes(queries, "bf16") + stored_bytes(kv, self.kv_cache))

    @property
    def arithmetic(self) -> str:
        return (
            self.activations
            if self.activations in ("fp8", "fp16", "fp32")
            else wider("bf16", self.activations)
        )


@dataclass(frozen=True, slots=True)
class DecodeAttention:
    """One new token for each of `batch` sequences of `context` cached tokens, itself included."""

    batch: Size
    context: Size
    heads: Size
    kv_heads: Size
    head_dim: Size
    value_dim: Size | None = None
    window: Size | None = None
    shared_kv: bool = False
    activations: str = "bf16"
    kv_cache: str = "bf16"

    name: ClassVar[str] = "attention_decode"

    @classmethod
    def mla(
        cls, batch: Size, context: Size, heads: Size, kv_rank: Size, rope_dim: Size, *,
        activations: str = "bf16", kv_cache: str = "bf16",
    ) -> DecodeAttention:  # fmt: skip
        """Absorbed MLA: all heads share one cached row of `kv_rank + rope_dim`, of which `kv_rank` is the value."""
        return cls(batch, context, heads, 1, _sum(kv_rank, rope_dim), kv_rank, shared_kv=True,
                   activations=activations, kv_cache=kv_cache)  # fmt: skip

    @property
    def attended(self) -> Floats:
        """Cached tokens that one sequence attends to."""
        return attended_pairs(1, number(self.context) - 1.0, self.window)

    @property
    def flops(self) -> Work:
        row = _row(self.head_dim, self.value_dim)
        return tidy(2.0 * number(self.batch) * number(self.heads) * row * self.attended)

    @property
    def bytes(self) -> Work:
        """Attended keys and values read once; queries in, outputs out."""
        kv = number(self.batch) * self.attended * number(self.kv_heads)
        kv = kv * _cached_row(self.head_dim, self.value_dim, self.shared_kv)
        queries = number(self.batch) * number(self.heads) * _row(self.head_dim, self.value_dim)
        return tidy(stored_bytes(kv, self.kv_cache) + stored_bytes(queries, "bf16"))

    @property
    def arithmetic(self) -> str:
        return (
            self.activations
            if self.activations in ("fp8", "fp16", "fp32")
            else wider("bf16", self.activations)
        )


def _sum(first: Size, second: Size) -> Size:
    total = np.asarray(first) + np.asarray(second)
    return int(total) if total.ndim == 0 else total.astype(np.int64)


def _row(head_dim: Size, value_dim: Size | None) -> Floats:
    """Elements of one head's key and value rows."""
    return number(head_dim) + number(head_dim if value_dim is None else value_dim)


def _cached_row(head_dim: Size, value_dim: Size | None, shared_kv: bool) -> Floats:
    """Elements of one head that the cache holds per token."""
    return number(head_dim) if shared_kv else _row(head_dim, value_dim)
