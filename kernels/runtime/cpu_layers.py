"""The decoder's arithmetic with the processor's own kernels: weights read in place where few tokens use them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..cpu.compiled import plain
from ..cpu.decode_attention import decode_attention
from ..cpu.fused_moe import FEW_TOKENS
from ..cpu.gemm import product, wide_product
from ..cpu.norm import norm
from ..cpu.router_top_k import router_top_k
from ..cpu.rows import experts_in, experts_out
from .kv import PassRows
from .layers import Layers, Pairs, matrices_of

_LARGE_EXPERT_BYTES = 2**22  # where `fused_moe` changes its threshold
_FEW_SEQUENCES = (
    2  # up to here torch's attention over each sequence's own pages starts sooner than the paged kernel
)
_FIRST = np.zeros(1, np.int64)


class _Slot(NamedTuple):
    w_in_ID: Tensor
    w_out_DM: Tensor
    plain_in_1ID: Any
    plain_out_1DM: Any


class CpuLayers(Layers):
    """As `Layers`, on the processor."""

    def product(self, x_TD: Tensor, w_CD: Tensor) -> Tensor:
        return product(x_TD, w_CD)

    def norm(self, x_TD: Tensor, weight_D: Tensor) -> Tensor:
        return norm(x_TD, weight_D)

    def decode_attention(self, q_BHd: Tensor, layer: int, rows: PassRows, window: int | None) -> Tensor:
        if len(rows.spans_B) <= _FEW_SEQUENCES:
            return super().decode_attention(q_BHd, layer, rows, window)
        return decode_attention(
            q_BHd, self.kv.keys[layer], self.kv.values[layer], rows.tables_BX, rows.lengths_B, window=window
        )

    def router_logits(self, x_TD: Tensor, router_ND: Tensor) -> Tensor:
        return wide_product(x_TD, router_ND)

    def top_k(self, logits_TN: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
        return router_top_k(logits_TN, top_k=top_k)

    def slot_views(self, row: Tensor) -> object:
        w_in, w_out = matrices_of(row, self.weights.shape, self.weights.dtype)
        return _Slot(w_in, w_out, plain(w_in[None]), plain(w_out[None]))

    def begin_experts(self, x_TD: Tensor) -> None:
        super().begin_experts(x_TD)
        self._wide_x, self._wide_sum = x_TD.float().contiguous().numpy(), self._sum.numpy()
        shape = self.weights.shape
        self._few = FEW_TOKENS[x_TD.dtype][shape.weight_bytes > _LARGE_EXPERT_BYTES]

    def add_expert(self, slot: object, pairs: Pairs, member: int) -> None:
        assert isinstance(slot, _Slot)
        start, end = pairs.starts_S[member], pairs.ends_S[member]
        if end - start > self._few:
            super().add_expert((slot.w_in_ID, slot.w_out_DM), pairs, member)
            return
        tokens, shares = pairs.tokens_P[start:end], pairs.weights_P[start:end]
        ends = np.array([end - start])
        width = self.weights.shape.width
        hidden = np.empty((end - start, width), np.float32)
        silu = self.weights.shape.gated
        experts_in(self._wide_x, slot.plain_in_1ID, _FIRST, _FIRST, ends, tokens, shares, width, silu, hidden)
        experts_out(hidden, slot.plain_out_1DM, _FIRST, _FIRST, ends, tokens, self._wide_sum)


def layers_for(device: str) -> type[Layers]:
    """The arithmetic for a device."""
    return CpuLayers if torch.device(device).type == "cpu" else Layers
