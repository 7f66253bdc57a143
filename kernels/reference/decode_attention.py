"""Attention of one new token a sequence over its paged KV cache."""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import UsageError
from .shapes import AttentionSizes, attention_sizes, dimensions, expects


def decode_attention(
    q_BHd: Tensor,
    k_pages_PGhd: Tensor,
    v_pages_PGhd: Tensor,
    page_table_BX: Tensor,
    lengths_B: Tensor,
    *,
    window: int | None = None,
) -> Tensor:
    """[B, H, d]: softmax(q · k / √d) v over the last `window` (else all) of each sequence's `lengths_B` tokens.

    Position t of sequence b lies in page `page_table_BX[b, t // G]`, row t % G; entries beyond the length are not read.
    The new token itself is the last of its sequence. A length of 0 (padding of a batch) gives zeros.
    Raises `UsageError` where shapes do not fit.
    """
    sizes = decode_sizes(q_BHd, k_pages_PGhd, v_pages_PGhd, page_table_BX, lengths_B, window)
    page_tokens = k_pages_PGhd.shape[1]
    out_BHd = torch.zeros_like(q_BHd)
    for b in range(sizes.batch):
        length = int(lengths_B[b])
        first = 0 if window is None else max(0, length - window)
        pages_X = page_table_BX[b].tolist()
        places = [(pages_X[t // page_tokens], t % page_tokens) for t in range(first, length)]
        if not places:
            continue
        pages, rows = zip(*places, strict=True)
        k_Chd = k_pages_PGhd[list(pages), list(rows)]
        v_Chd = v_pages_PGhd[list(pages), list(rows)]
        out_BHd[b] = attend(q_BHd[b : b + 1], k_Chd, v_Chd)[0]
    return out_BHd


def attend(q_QHd: Tensor, k_Chd: Tensor, v_Chd: Tensor, allowed_QC: Tensor | None = None) -> Tensor:
    """softmax(q · k / √d) v in float64, returned in the format of q, [Q, H, d]; each KV head serves H/h query heads.

    Where `allowed_QC` is given, query i sees key j only where it is true, and must see at least one.
    """
    heads, kv_heads, head_dim = q_QHd.shape[1], k_Chd.shape[1], q_QHd.shape[2]
    out_QHd = torch.empty_like(q_QHd)
    for head in range(heads):
        shared = head // (heads // kv_heads)
        scores_QC = q_QHd[:, head].double() @ k_Chd[:, shared].double().T / head_dim**0.5
        if allowed_QC is not None:
            scores_QC = scores_QC.masked_fill(~allowed_QC, -torch.inf)
        out_QHd[:, head] = (torch.softmax(scores_QC, dim=-1) @ v_Chd[:, shared].double()).to(q_QHd.dtype)
    return out_QHd


def decode_sizes(
    q_BHd: Tensor,
    k_pages_PGhd: Tensor,
    v_pages_PGhd: Tensor,
    page_table_BX: Tensor,
    lengths_B: Tensor,
    window: int | None,
) -> AttentionSizes:
    """Sizes of a call; raises `UsageError` where shapes do not fit."""
    dimensions("q_BHd", q_BHd, 3)
    _, page_tokens, kv_heads, head_dim = dimensions("k_pages_PGhd", k_pages_PGhd, 4)
    expects(
        "v_pages_PGhd",
        v_pages_PGhd,
        v_pages_PGhd.shape == k_pages_PGhd.shape,
        f"{list(k_pages_PGhd.shape)} as the keys",
    )
    sizes = attention_sizes(q_BHd[:, None], kv_heads, head_dim)
    batch, _ = dimensions("page_table_BX", page_table_BX, 2)
    expects("page_table_BX", page_table_BX, batch == sizes.batch, f"[{sizes.batch}, X]")
    expects("lengths_B", lengths_B, tuple(lengths_B.shape) == (sizes.batch,), f"[{sizes.batch}]")
    if window is not None and window < 1:
        raise UsageError(f"window must be at least 1 token, got {window}")
    if page_tokens < 1:
        raise UsageError("a page must hold at least 1 token")
    return sizes
