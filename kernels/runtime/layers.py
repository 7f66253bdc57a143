"""The arithmetic of a decoder in plain torch, on any device: everything but which experts sit where.

`cpu_layers.CpuLayers` is the same with the processor's own kernels; a test holds the two to one result.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import linear, rms_norm, scaled_dot_product_attention, silu

from .kv import KvCache, PassRows
from .weights import ExpertShape, LayerWeights, Weights

_EPS = 1e-6
_ROPE_BASE = 10_000.0


class Pairs(NamedTuple):
    """Pairs (token, chosen expert) sorted by expert, padding left out. S distinct experts, P pairs."""

    experts_S: NDArray[np.int64]
    starts_S: NDArray[np.int64]
    ends_S: NDArray[np.int64]
    tokens_P: NDArray[np.int64]
    weights_P: NDArray[np.float32]


def pairs_of(ids_TK: NDArray[np.integer], weights_TK: NDArray[np.float32]) -> Pairs:
    """Experts ascending, tokens of one expert in their order: the order of an event's members."""
    flat = ids_TK.ravel()
    order = np.argsort(flat, kind="stable")
    order = order[np.searchsorted(flat, 0, sorter=order) :]
    chosen = flat[order]
    starts = np.flatnonzero(np.r_[True, chosen[1:] != chosen[:-1]]) if len(chosen) else np.zeros(0, np.int64)
    ends = np.r_[starts[1:], len(chosen)] if len(chosen) else starts
    return Pairs(
        chosen[starts].astype(np.int64), starts, ends, order // ids_TK.shape[1], weights_TK.ravel()[order]
    )


class Layers:
    """One decoder's arithmetic. T rows of a pass, D hidden."""

    def __init__(self, weights: Weights, kv: KvCache, longest: int) -> None:
        self.weights, self.kv = weights, kv
        self.cos, self.sin = {}, {}
        for dim in {layer.attention.head_dim for layer in weights.layers}:
            angle = torch.outer(torch.arange(longest), _ROPE_BASE ** (-torch.arange(0, dim, 2) / dim))
            self.cos[dim] = angle.cos().to(weights.dtype).to(weights.device)
            self.sin[dim] = angle.sin().to(weights.dtype).to(weights.device)

    # -- pieces that a subclass may do better -----------------------------------------------------------------------

    def product(self, x_TD: Tensor, w_CD: Tensor) -> Tensor:
        return linear(x_TD, w_CD)

    def norm(self, x_TD: Tensor, weight_D: Tensor) -> Tensor:
        return rms_norm(x_TD, (x_TD.shape[-1],), weight_D, _EPS)

    def decode_attention(self, q_BHd: Tensor, layer: int, rows: PassRows, window: int | None) -> Tensor:
        keys, values = (pages[layer].flatten(0, 1) for pages in (self.kv.keys, self.kv.values))
        grouped = keys.shape[1] != q_BHd.shape[1]
        parts = []
        for b, (begin, length) in enumerate(rows.spans_B):
            first = begin if window is None else begin + max(0, length - window)
            k, v = (array[first : begin + length].transpose(0, 1)[None] for array in (keys, values))
            parts.append(
                scaled_dot_product_attention(q_BHd[b, None, :, None], k, v, enable_gqa=grouped)[0, :, 0]
            )
        return parts[0][None] if len(parts) == 1 else torch.stack(parts)

    def router_logits(self, x_TD: Tensor, router_ND: Tensor) -> Tensor:
        """[T, N] in fp32."""
        return linear(x_TD.float(), router_ND.float())

    def top_k(self, logits_TN: Tensor, top_k: int) -> tuple[Tensor, Tensor]:
        """Weights that add up to 1, and ids; the strongest first."""
        values, ids = logits_TN.topk(top_k, dim=-1)
        return values.softmax(-1), ids

    def slot_views(self, row: Tensor) -> object:
        """What `add_expert` wants of a slot: made once for each."""
        return matrices_of(row, self.weights.shape, self.weights.dtype)

    def begin_experts(self, x_TD: Tensor) -> None:
        """Before the experts of a layer: the input in the form they want, and a sum of zeros."""
        self._x, self._sum = x_TD, torch.zeros(x_TD.shape, dtype=torch.float32, device=x_TD.device)

    def add_expert(self, slot: object, pairs: Pairs, member: int) -> None:
        """sum += weight · expert(x) over the tokens that chose the member."""
        assert isinstance(slot, tuple)
        w_in, w_out = slot
        part = slice(int(pairs.starts_S[member]), int(pairs.ends_S[member]))
        tokens = torch.from_numpy(pairs.tokens_P[part]).to(self._x.device)
        share = torch.from_numpy(pairs.weights_P[part]).to(self._x.device)
        y = self.feed_forward(self._x.index_select(0, tokens), w_in, w_out, self.weights.shape.gated)
        self._sum.index_add_(0, tokens, y.float() * share[:, None])

    def experts_sum(self) -> Tensor:
        """The sum, in the run's format."""
        return self._sum.to(self.weights.dtype)

    # -- a layer ----------------------------------------------------------------------------------------------------

    def embed(self, tokens_T: Tensor) -> Tensor:
        return self.weights.embedding_VD.index_select(0, tokens_T)

    def feed_forward(self, x_TD: Tensor, w_in_ID: Tensor, w_out_DM: Tensor, gated: bool) -> Tensor:
        hidden, width = self.product(x_TD, w_in_ID), w_out_DM.shape[1]
        act = silu(hidden[:, :width]) * hidden[:, width:] if gated else torch.relu(hidden).square()
        return self.product(act, w_out_DM)

    def mix(self, index: int, x_TD: Tensor, rows: PassRows) -> Tensor:
        """x + attention(norm(x)), the keys and values of its rows entered."""
        layer = self.weights.layers[index]
        a = layer.attention
        qkv = self.product(self.norm(x_TD, layer.norm_in_D), layer.qkv_CD)
        q, k, v = qkv.split([a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.head_dim], dim=1)
        if a.qk_norm == "whole":
            q, k = rms_norm(q, (q.shape[1],)), rms_norm(k, (k.shape[1],))
        q, k, v = (part.reshape(len(x_TD), -1, a.head_dim) for part in (q, k, v))
        if a.qk_norm == "head":
            q, k = rms_norm(q, (a.head_dim,)), rms_norm(k, (a.head_dim,))
        q, k = self._turn(torch.cat((q, k), 1), rows, a.head_dim).split([a.heads, a.kv_heads], dim=1)
        keys, values = (pages[index].flatten(0, 1) for pages in (self.kv.keys, self.kv.values))
        keys.index_copy_(0, rows.entries_T, k)
        values.index_copy_(0, rows.entries_T, v)
        if len(rows.single_B) == len(x_TD):
            out = self.decode_attention(q, index, rows, a.window)
        else:
            out = torch.empty_like(q)
            if len(rows.single_B):
                out[rows.single_B] = self.decode_attention(q[rows.single_B], index, rows, a.window)
            for chunk in rows.chunks:
                seen = slice(chunk.first_entry, chunk.first_entry + chunk.end)
                out[chunk.low : chunk.high] = _chunk_attention(
                    q[chunk.low : chunk.high], keys[seen], values[seen], chunk.begin, a.window
                )
        return x_TD + self.product(out.reshape(len(x_TD), -1), layer.out_DC)

    def _turn(self, x_THd: Tensor, rows: PassRows, dim: int) -> Tensor:
        """Rotary positions (Su et al. 2021), halves rotated against each other."""
        cos, sin = (table[dim].index_select(0, rows.positions_T)[:, None] for table in (self.cos, self.sin))
        one, two = x_THd.chunk(2, dim=-1)
        return torch.cat((one * cos - two * sin, two * cos + one * sin), dim=-1)

    def dense(self, layer: LayerWeights, x_TD: Tensor, gated: bool) -> Tensor:
        """x + feed-forward(norm(x)); x itself where the layer has none."""
        if layer.ffn_in_ID is None or layer.ffn_out_DM is None:
            return x_TD
        return x_TD + self.feed_forward(
            self.norm(x_TD, layer.norm_ffn_D), layer.ffn_in_ID, layer.ffn_out_DM, gated
        )

    def head(self, x_TD: Tensor, rows: PassRows) -> Tensor:
        """The next token of each sequence in the pass, [R]."""
        last = self.norm(x_TD.index_select(0, rows.last_R), self.weights.norm_final_D)
        return self.product(last, self.weights.head_VD).argmax(dim=-1)


def matrices_of(row: Tensor, shape: ExpertShape, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The expert's two matrices [I, D] and [D, M], views into its row of bytes."""
    flat = row[: shape.weight_bytes].view(dtype)
    cut = shape.rows_in * shape.hidden
    return flat[:cut].view(shape.rows_in, shape.hidden), flat[cut:].view(shape.hidden, shape.width)


def _chunk_attention(q_THd: Tensor, k_Chd: Tensor, v_Chd: Tensor, begin: int, window: int | None) -> Tensor:
    """Rows that follow `begin` tokens of their own sequence, each over itself and what came before."""
    q, k, v = (array.transpose(0, 1) for array in (q_THd, k_Chd, v_Chd))
    grouped = q.shape[0] != k.shape[0]
    if begin == 0 and window is None:
        return scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True, enable_gqa=grouped)[
            0
        ].transpose(0, 1)
    here = torch.arange(begin, begin + len(q_THd), device=q.device)[:, None]
    there = torch.arange(k.shape[1], device=q.device)[None, :]
    seen = (there <= here) if window is None else (there <= here) & (here - there < window)
    return scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=grouped).transpose(0, 1)
