"""Sizes of a call, read from its arrays and checked against each other. All versions of a kernel check with these.

Every function raises `UsageError` that names the argument, its shape and what would be right.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, get_args

from torch import Tensor

from ...errors import UsageError, unknown_name

Activation = Literal["silu", "relu2"]


class MoeSizes(NamedTuple):
    tokens: int
    hidden: int
    """The width the router sees."""
    width_in: int
    """The width the experts work in: hidden, or the latent width."""
    num_experts: int
    top_k: int
    width: int
    """Rows of one expert's second matrix's input: the intermediate width."""
    gated: bool


class AttentionSizes(NamedTuple):
    batch: int
    queries: int
    """Query positions a sequence."""
    heads: int
    kv_heads: int
    head_dim: int

    @property
    def group(self) -> int:
        """Query heads that share a KV head."""
        return self.heads // self.kv_heads


class ScanSizes(NamedTuple):
    batch: int
    tokens: int
    heads: int
    head_dim: int
    groups: int
    state: int


def moe_sizes(
    x_TD: Tensor,
    router_ND: Tensor,
    w_in_NIW: Tensor,
    w_out_NWM: Tensor,
    top_k: int,
    activation: str,
    width_in: int | None = None,
) -> MoeSizes:
    """Sizes of an MoE layer; `width_in` is the latent width where experts do not work in the hidden one."""
    if activation not in get_args(Activation):
        raise unknown_name("activation", activation, get_args(Activation))
    tokens, hidden = dimensions("x_TD", x_TD, 2)
    num_experts, router_width = dimensions("router_ND", router_ND, 2)
    expects("router_ND", router_ND, router_width == hidden, f"[N, {hidden}]")
    wide = hidden if width_in is None else width_in
    n_out, w_out, width = dimensions("w_out", w_out_NWM, 3)
    expects("w_out", w_out_NWM, (n_out, w_out) == (num_experts, wide), f"[{num_experts}, {wide}, M]")
    n_in, rows, w_in = dimensions("w_in", w_in_NIW, 3)
    expects(
        "w_in", w_in_NIW, (n_in, w_in) == (num_experts, wide) and rows in (width, 2 * width),
        f"[{num_experts}, {width} or (gated) {2 * width}, {wide}]",
    )  # fmt: skip
    if not 1 <= top_k <= num_experts:
        raise UsageError(f"top_k must be between 1 and the {num_experts} experts, got {top_k}")
    return MoeSizes(tokens, hidden, wide, num_experts, top_k, width, gated=rows == 2 * width)


def check_choices(x_TW: Tensor, weights_TK: Tensor, experts_TK: Tensor) -> None:
    """Refuse choices of experts that are not [T, K] of both weights and ids for these tokens."""
    if weights_TK.shape != experts_TK.shape or experts_TK.ndim != 2 or len(experts_TK) != len(x_TW):
        raise UsageError(
            f"{len(x_TW)} tokens need weights and experts [T, K], got {list(weights_TK.shape)} and {list(experts_TK.shape)}"
        )


def alike(source: Tensor, target: Tensor) -> None:
    """Refuse a copy between arrays of unlike shape or format."""
    if source.shape != target.shape or source.dtype != target.dtype:
        raise UsageError(
            f"a copy needs two alike, got {list(source.shape)} {source.dtype} and {list(target.shape)} {target.dtype}"
        )


def latent_width(x_TD: Tensor, down_LD: Tensor, up_DL: Tensor) -> int:
    """The latent width of the two projections, checked against each other and the hidden width."""
    _, hidden = dimensions("x_TD", x_TD, 2)
    latent, down_hidden = dimensions("down_LD", down_LD, 2)
    expects("down_LD", down_LD, down_hidden == hidden, f"[L, {hidden}]")
    expects("up_DL", up_DL, tuple(up_DL.shape) == (hidden, latent), f"[{hidden}, {latent}]")
    return latent


def attention_sizes(q_BQHd: Tensor, kv_heads: int, head_dim: int) -> AttentionSizes:
    """Sizes of attention of `q_BQHd` over keys and values of `kv_heads` heads of `head_dim`."""
    batch, queries, heads, q_dim = dimensions("q", q_BQHd, 4)
    if q_dim != head_dim:
        raise UsageError(f"q has head size {q_dim}, the keys have {head_dim}")
    if kv_heads < 1 or heads % kv_heads:
        raise UsageError(f"{heads} query heads cannot share {kv_heads} KV heads: not a multiple")
    return AttentionSizes(batch, queries, heads, kv_heads, head_dim)


def scan_sizes(
    x_BTHp: Tensor, dt_BTH: Tensor, A_H: Tensor, B_BTGn: Tensor, C_BTGn: Tensor, D_H: Tensor, chunk: int
) -> ScanSizes:
    """Sizes of a Mamba-2 scan."""
    batch, tokens, heads, head_dim = dimensions("x_BTHp", x_BTHp, 4)
    expects("dt_BTH", dt_BTH, tuple(dt_BTH.shape) == (batch, tokens, heads), f"[{batch}, {tokens}, {heads}]")
    expects("A_H", A_H, tuple(A_H.shape) == (heads,), f"[{heads}]")
    expects("D_H", D_H, tuple(D_H.shape) == (heads,), f"[{heads}]")
    _, _, groups, state = dimensions("B_BTGn", B_BTGn, 4)
    for name, array in (("B_BTGn", B_BTGn), ("C_BTGn", C_BTGn)):
        expects(
            name,
            array,
            tuple(array.shape) == (batch, tokens, groups, state),
            f"[{batch}, {tokens}, {groups}, {state}]",
        )
    if heads % groups:
        raise UsageError(f"{heads} heads cannot share {groups} groups of B and C: not a multiple")
    if chunk < 1:
        raise UsageError(f"chunk must be at least 1 token, got {chunk}")
    return ScanSizes(batch, tokens, heads, head_dim, groups, state)


def dimensions(name: str, array: Tensor, count: int) -> tuple[int, ...]:
    """The shape of an array that must have `count` dimensions."""
    expects(name, array, array.ndim == count, f"{count} dimensions")
    return tuple(array.shape)


def expects(name: str, array: Tensor, right: bool, wanted: str) -> None:
    if not right:
        raise UsageError(f"{name} has shape {list(array.shape)}, expected {wanted}")
