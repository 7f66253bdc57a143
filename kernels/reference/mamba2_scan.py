"""The Mamba-2 state-space scan (SSD, arXiv 2405.21060), token by token; causal, or in both directions."""

from __future__ import annotations

import torch
from torch import Tensor

from .shapes import scan_sizes


def mamba2_scan(
    x_BTHp: Tensor,
    dt_BTH: Tensor,
    A_H: Tensor,
    B_BTGn: Tensor,
    C_BTGn: Tensor,
    D_H: Tensor,
    *,
    chunk: int,
    bidirectional: bool,
) -> Tensor:
    """y_BTHp, from a state of zeros: S_t = exp(dt_t A) S_{t−1} + dt_t x_t B_tᵀ, y_t = S_t C_t + D x_t.

    `dt_BTH` is positive (softplus and bias are already in it), `A_H` negative; H/G heads share a group's B and C.
    Bidirectional: the forward scan plus the same scan over the reversed sequence, the diagonal (what a token gets from
    itself, D x_t included) counted once. `chunk` changes how fast versions cut the work, never the result.
    Raises `UsageError` where shapes do not fit.
    """
    sizes = scan_sizes(x_BTHp, dt_BTH, A_H, B_BTGn, C_BTGn, D_H, chunk)
    share = sizes.heads // sizes.groups
    x, dt, A = x_BTHp.double(), dt_BTH.double(), A_H.double()
    B_BTHn = B_BTGn.double().repeat_interleave(share, dim=2)
    C_BTHn = C_BTGn.double().repeat_interleave(share, dim=2)
    y = _scan(x, dt, A, B_BTHn, C_BTHn)
    if bidirectional:
        backward = _scan(x.flip(1), dt.flip(1), A, B_BTHn.flip(1), C_BTHn.flip(1)).flip(1)
        from_itself = (B_BTHn * C_BTHn).sum(-1, keepdim=True) * dt[..., None] * x
        y = y + backward - from_itself
    return (y + D_H.double()[:, None] * x).to(x_BTHp.dtype)


def _scan(x_BTHp: Tensor, dt_BTH: Tensor, A_H: Tensor, B_BTHn: Tensor, C_BTHn: Tensor) -> Tensor:
    batch, tokens, heads, head_dim = x_BTHp.shape
    state_BHpn = x_BTHp.new_zeros(batch, heads, head_dim, B_BTHn.shape[3])
    y_BTHp = torch.empty_like(x_BTHp)
    for t in range(tokens):
        decay_BH = torch.exp(dt_BTH[:, t] * A_H)
        drive_BHp = dt_BTH[:, t, :, None] * x_BTHp[:, t]
        state_BHpn = decay_BH[..., None, None] * state_BHpn + drive_BHp[..., None] * B_BTHn[:, t, :, None, :]
        y_BTHp[:, t] = (state_BHpn * C_BTHn[:, t, :, None, :]).sum(-1)
    return y_BTHp
