"""The Mamba-2 scan in chunks (SSD, arXiv 2405.21060) as batched products in fp32; causal, or both ways in one pass.

Inside a chunk every pair of tokens is one entry of a matrix C·B scaled by the decay between them; between chunks only the
states travel. Both ways share the products: entries below the diagonal decay forwards, those above it backwards.

Shape letters: R chunks of Q tokens, H heads as G groups of J, p head size, n state size.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..reference.shapes import scan_sizes


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
    """y_BTHp in the format of x; meaning and errors as `kernels.reference.mamba2_scan`."""
    sizes = scan_sizes(x_BTHp, dt_BTH, A_H, B_BTGn, C_BTGn, D_H, chunk)
    batch, size, groups = sizes.batch, sizes.head_dim, sizes.groups
    chunk = max(1, min(chunk, sizes.tokens))
    chunks, share = -(-sizes.tokens // chunk), sizes.heads // sizes.groups
    missing = chunks * chunk - sizes.tokens

    def cut(array: Tensor, *inner: int) -> Tensor:
        """fp32, zeros up to whole chunks (no step, no input: nothing happens there), [B, R, Q, *inner]."""
        wide = array.float()
        if missing:
            wide = torch.cat([wide, wide.new_zeros(batch, missing, *array.shape[2:])], dim=1)
        return wide.reshape(batch, chunks, chunk, *inner)

    with torch.inference_mode():
        dt = cut(dt_BTH, groups, share)
        x = cut(x_BTHp, groups, share, size)
        inputs, outputs = (
            cut(one, groups, sizes.state).transpose(2, 3) for one in (B_BTGn, C_BTGn)
        )  # [B, R, G, Q, n]
        step = dt * A_H.float().view(groups, share)  # [B, R, Q, G, J]
        until = step.cumsum(2)  # decay of the chunk's tokens up to and with this one, as a logarithm
        total = until[:, :, -1:]
        ahead = (
            until - step
        )  # decay of the tokens before this one: what lies between it and the chunk's start
        driven = x * dt[..., None]
        y = _within(outputs @ inputs.transpose(-1, -2), until, ahead, driven, bidirectional)
        y += D_H.float().view(groups, share, 1) * x
        kept = torch.exp(total).permute(0, 1, 3, 4, 2)  # [B, R, G, J, 1]
        y += _between(
            driven, torch.exp(total - until), torch.exp(until), kept, inputs, outputs, reverse=False
        )
        if bidirectional:
            y += _between(
                driven, torch.exp(ahead), torch.exp(total - ahead), kept, inputs, outputs, reverse=True
            )
        y_BTHp = y.reshape(batch, chunks * chunk, sizes.heads, size)
        return y_BTHp[:, : sizes.tokens].to(x_BTHp.dtype)


def _within(scores: Tensor, until: Tensor, ahead: Tensor, driven: Tensor, bidirectional: bool) -> Tensor:
    """What tokens of one chunk get from each other, [B, R, Q, G, J, p]: token i from j ≤ i, or both ways from any j."""
    until, ahead = until.permute(0, 1, 3, 4, 2), ahead.permute(0, 1, 3, 4, 2)  # [B, R, G, J, Q]
    decay = until[..., :, None] - until[..., None, :]
    above = torch.ones(decay.shape[-2:], dtype=torch.bool).triu(1)
    if bidirectional:
        decay = torch.where(above, ahead[..., None, :] - ahead[..., :, None], decay)
    else:
        decay.masked_fill_(above, -torch.inf)
    decay = decay.exp_().mul_(scores[:, :, :, None])
    return (decay @ driven.permute(0, 1, 3, 4, 2, 5)).permute(0, 1, 4, 2, 3, 5).contiguous()


def _between(
    driven: Tensor,
    put_in: Tensor,
    taken_out: Tensor,
    kept: Tensor,
    inputs: Tensor,
    outputs: Tensor,
    *,
    reverse: bool,
) -> Tensor:
    """What tokens get from other chunks' states, [B, R, Q, G, J, p]. Heads of a group share B and C in one product."""
    batch, chunks, chunk, groups, share, size = driven.shape
    weighted = (
        (driven * put_in[..., None]).transpose(2, 3).reshape(batch, chunks, groups, chunk, share * size)
    )
    added = (weighted.transpose(-1, -2) @ inputs).view(batch, chunks, groups, share, size, -1)
    before = _states(added, kept, reverse=reverse).view(batch, chunks, groups, share * size, -1)
    read = (outputs @ before.transpose(-1, -2)).view(batch, chunks, groups, chunk, share, size)
    return read.transpose(2, 3) * taken_out[..., None]


def _states(added: Tensor, kept: Tensor, *, reverse: bool) -> Tensor:
    """The state that each chunk starts from, [B, R, G, J, p, n]: S ← kept · S + added, chunk after chunk."""
    states = torch.empty_like(added)
    state = torch.zeros_like(added[:, 0])
    order = range(added.shape[1] - 1, -1, -1) if reverse else range(added.shape[1])
    for r in order:
        states[:, r] = state
        state = torch.addcmul(added[:, r], kept[:, r, ..., None], state)
    return states
