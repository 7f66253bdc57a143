"""The decoder of a `ModelSpec` with weights that can be trained: attention and mixtures, standard or latent.

Pre-norm (RMSNorm), rotary positions, and in a latent mixture one shared projection down before the experts and one up
after their weighted sum (arXiv 2601.18089); router and shared experts stay at the model's width. A latent norm stands
between sum and projection up, as in Kimi-K3's published code. Its parameters are those that the spec counts.

Shape letters: B sequences, T tokens, S = B·T rows, D hidden, H query heads, h KV heads, d head size, N experts, K top-k,
W the width experts work in (D or the latent width), I = 2M if gated (gate rows first) else M, P = S·K pairs, V vocabulary.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding, linear, rms_norm, scaled_dot_product_attention, silu

from ...sim.ffn import DenseFfn, MoeFfn
from ...sim.mixers import Attention
from ...sim.model import Layer, ModelSpec
from .grouped import grouped_product
from .recipe import check_trainable

_EPS = 1e-6
_ROPE_BASE = 10_000.0


class Decoder:
    """Weights by name, and what they make of tokens. The seed alone decides the first weights."""

    def __init__(self, spec: ModelSpec, seed: int) -> None:
        check_trainable(spec, spec.vocab)
        self.spec = spec
        self._draw = torch.Generator().manual_seed(seed)
        self.weights: dict[str, Tensor] = {}
        self._matrix(
            "embedding", spec.vocab, spec.hidden, deviation=1.0 if not spec.tied_embeddings else None
        )
        for index, layer in enumerate(spec.layers):
            self._add_layer(f"{index}.", layer)
        self._norm("norm", spec.hidden)
        if not spec.tied_embeddings:
            self._matrix("head", spec.vocab, spec.hidden)
        self._rope: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    @property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.weights.values())

    def forward(self, tokens_BT: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Logits [B, T, V] of the next token, and each mixture's router logits [S, N]."""
        batch, length = tokens_BT.shape
        x_SD = embedding(tokens_BT.flatten(), self.weights["embedding"])
        routers: list[Tensor] = []
        for index, layer in enumerate(self.spec.layers):
            name = f"{index}."
            assert isinstance(layer.mixer, Attention)
            x_SD = x_SD + self._attend(name, layer.mixer, self._normed(x_SD, name + "norm_in"), batch, length)
            inner_SD = self._normed(x_SD, name + "norm_ffn")
            if isinstance(layer.ffn, MoeFfn):
                y_SD, logits_SN = self._mixture(name, layer.ffn, inner_SD)
                routers.append(logits_SN)
            else:
                assert isinstance(layer.ffn, DenseFfn)
                y_SD = self._feed_forward(name + "ffn", inner_SD, layer.ffn.gated)
            x_SD = x_SD + y_SD
        head_VD = self.weights["embedding" if self.spec.tied_embeddings else "head"]
        return linear(self._normed(x_SD, "norm"), head_VD).view(batch, length, -1), routers

    # -- weights ----------------------------------------------------------------------------------------------------

    def _add_layer(self, name: str, layer: Layer) -> None:
        attention, hidden = layer.mixer, self.spec.hidden
        assert isinstance(attention, Attention)
        self._norm(name + "norm_in", hidden)
        self._matrix(name + "qkv", attention.qkv_columns, hidden)
        self._matrix(name + "out", hidden, attention.heads * attention.value_dim, into_sum=True)
        if attention.qk_norm != "none":
            whole = attention.qk_norm == "whole"
            self._norm(name + "norm_q", attention.head_dim * (attention.heads if whole else 1))
            self._norm(name + "norm_k", attention.head_dim * (attention.kv_heads if whole else 1))
        self._norm(name + "norm_ffn", hidden)
        if isinstance(layer.ffn, MoeFfn):
            self._add_mixture(name, layer.ffn)
        elif isinstance(layer.ffn, DenseFfn):
            self._add_feed_forward(name + "ffn", hidden, layer.ffn.intermediate, layer.ffn.gated)

    def _add_mixture(self, name: str, moe: MoeFfn) -> None:
        self._matrix(name + "router", moe.num_experts, moe.hidden)
        rows = (2 if moe.gated else 1) * moe.intermediate
        self._matrix(name + "experts_in", moe.num_experts, rows, moe.expert_width)
        standard = moe.latent is None
        self._matrix(
            name + "experts_out", moe.num_experts, moe.expert_width, moe.intermediate, into_sum=standard
        )
        if moe.latent is not None:
            self._matrix(name + "down", moe.latent, moe.hidden)
            self._matrix(name + "up", moe.hidden, moe.latent, into_sum=True)
            if moe.latent_norm:
                self._norm(name + "norm_latent", moe.latent)
        if moe.shared_intermediate:
            self._add_feed_forward(name + "shared", moe.hidden, moe.shared_intermediate, moe.gated)
            if moe.shared_gate:
                self._matrix(name + "shared_gate", 1, moe.hidden)

    def _add_feed_forward(self, name: str, hidden: int, width: int, gated: bool) -> None:
        self._matrix(name + "_in", (2 if gated else 1) * width, hidden)
        self._matrix(name + "_out", hidden, width, into_sum=True)

    def _matrix(self, name: str, *shape: int, into_sum: bool = False, deviation: float | None = None) -> None:
        """[…, outputs, inputs]. A deviation of 1/√inputs keeps the size of what passes at every width, so that no design
        starts at a disadvantage; what adds to the residual sum is smaller by √(2·layers), as in GPT-2."""
        if deviation is None:
            deviation = 1.0 / math.sqrt(shape[-1])
            if into_sum:
                deviation /= math.sqrt(2 * len(self.spec.layers))
        weight = torch.empty(shape).normal_(0.0, deviation, generator=self._draw)
        self.weights[name] = weight.requires_grad_()

    def _norm(self, name: str, width: int) -> None:
        self.weights[name] = torch.ones(width).requires_grad_()

    # -- arithmetic -------------------------------------------------------------------------------------------------

    def _normed(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, (x.shape[-1],), self.weights[name], _EPS)

    def _attend(self, name: str, a: Attention, x_SD: Tensor, batch: int, length: int) -> Tensor:
        sizes = [a.heads * a.head_dim, a.kv_heads * a.head_dim, a.kv_heads * a.value_dim]
        q, k, v = linear(x_SD, self.weights[name + "qkv"]).split(sizes, dim=-1)
        if a.qk_norm == "whole":
            q, k = self._normed(q, name + "norm_q"), self._normed(k, name + "norm_k")
        q_BHTd, k_BhTd = (part.view(batch, length, -1, a.head_dim).transpose(1, 2) for part in (q, k))
        v_BhTd = v.reshape(batch, length, -1, a.value_dim).transpose(1, 2)
        if a.qk_norm == "head":
            q_BHTd, k_BhTd = self._normed(q_BHTd, name + "norm_q"), self._normed(k_BhTd, name + "norm_k")
        q_BHTd, k_BhTd = self._turned(q_BHTd), self._turned(k_BhTd)
        if a.kv_heads != a.heads:
            k_BhTd, v_BhTd = (one.repeat_interleave(a.heads // a.kv_heads, 1) for one in (k_BhTd, v_BhTd))
        if a.window is None or a.window >= length:
            y_BHTd = scaled_dot_product_attention(q_BHTd, k_BhTd, v_BhTd, is_causal=True)
        else:
            back_TT = torch.arange(length)[:, None] - torch.arange(length)
            seen_TT = (back_TT >= 0) & (back_TT < a.window)
            y_BHTd = scaled_dot_product_attention(q_BHTd, k_BhTd, v_BhTd, attn_mask=seen_TT)
        return linear(y_BHTd.transpose(1, 2).reshape(batch * length, -1), self.weights[name + "out"])

    def _turned(self, x_BHTd: Tensor) -> Tensor:
        """Rotary positions (Su et al. 2021), halves rotated against each other."""
        length, dim = x_BHTd.shape[-2:]
        if (length, dim) not in self._rope:
            angle = torch.outer(torch.arange(length), _ROPE_BASE ** (-torch.arange(0, dim, 2) / dim))
            self._rope[length, dim] = angle.cos(), angle.sin()
        cos_Td, sin_Td = self._rope[length, dim]
        one, two = x_BHTd.chunk(2, dim=-1)
        return torch.cat((one * cos_Td - two * sin_Td, two * cos_Td + one * sin_Td), dim=-1)

    def _feed_forward(self, name: str, x_SD: Tensor, gated: bool) -> Tensor:
        return linear(activated(linear(x_SD, self.weights[name + "_in"]), gated), self.weights[name + "_out"])

    def _mixture(self, name: str, moe: MoeFfn, x_SD: Tensor) -> tuple[Tensor, Tensor]:
        logits_SN = linear(x_SD, self.weights[name + "router"])
        values_SK, experts_SK = logits_SN.topk(moe.top_k, dim=-1)
        # Weights add up to √K, so that the weighted sum of K unrelated outputs is as large as one of them, whatever K is:
        # Nemotron-3 scales its normalised weights by 2.5 for K = 6 and by 5 for K = 22, which is √K rounded.
        weights_P = (values_SK.softmax(-1) * math.sqrt(moe.top_k)).flatten()
        inner_SW = x_SD if moe.latent is None else linear(x_SD, self.weights[name + "down"])
        flat = experts_SK.flatten().numpy()
        # 16-bit numbers are sorted by radix, several times as fast
        order = np.argsort(flat.astype(np.int16) if moe.num_experts <= 2**15 else flat, kind="stable")
        ends_N = np.bincount(flat, minlength=moe.num_experts).cumsum().tolist()
        order_P = torch.from_numpy(order)
        rows_P = order_P // moe.top_k
        hidden_PI = grouped_product(
            inner_SW.index_select(0, rows_P), self.weights[name + "experts_in"], ends_N
        )
        out_PW = grouped_product(activated(hidden_PI, moe.gated), self.weights[name + "experts_out"], ends_N)
        weighed_PW = out_PW * weights_P.index_select(0, order_P)[:, None]
        y = torch.zeros_like(inner_SW).index_add(0, rows_P, weighed_PW)
        if moe.latent is not None:
            if moe.latent_norm:
                y = self._normed(y, name + "norm_latent")
            y = linear(y, self.weights[name + "up"])
        if moe.shared_intermediate:
            shared_SD = self._feed_forward(name + "shared", x_SD, moe.gated)
            if moe.shared_gate:
                shared_SD = shared_SD * linear(x_SD, self.weights[name + "shared_gate"]).sigmoid()
            y = y + shared_SD
        return y, logits_SN


def activated(hidden: Tensor, gated: bool) -> Tensor:
    """SwiGLU of [gate, up] halves, or squared ReLU."""
    if not gated:
        return torch.relu(hidden).square()
    gate, up = hidden.chunk(2, dim=-1)
    return silu(gate) * up


def router_losses(logits_SN: list[Tensor], top_k: int) -> tuple[Tensor, Tensor]:
    """Load-balance loss (Switch Transformer, arXiv 2101.03961, eq. 4; 1 is even) and router z-loss, averaged over layers.

    As OLMoE trains (arXiv 2409.02060, section 4.1), with shares of pairs instead of tokens: a scale that no K changes.
    """
    balances, squares = [], []
    for logits in logits_SN:
        probability = logits.softmax(-1)
        chosen = logits.detach().topk(top_k, dim=-1).indices.flatten()
        share_N = torch.bincount(chosen, minlength=logits.shape[1]) / chosen.numel()
        balances.append(logits.shape[1] * (share_N * probability.mean(0)).sum())
        squares.append(logits.logsumexp(-1).square().mean())
    return torch.stack(balances).mean(), torch.stack(squares).mean()
