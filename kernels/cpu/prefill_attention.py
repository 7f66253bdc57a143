"""Attention over a prompt on the processor: torch's flash attention, cut into bands where there is a window."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from ...errors import UsageError
from ..reference.shapes import attention_sizes, dimensions, expects


def prefill_attention(
    q_BTHd: Tensor, k_BThd: Tensor, v_BThd: Tensor, *, window: int | None = None, causal: bool = True
) -> Tensor:
    """[B, T, H, d]: softmax(q · k / √d) v, each token over itself and the tokens before it (the last `window` of them).

    Without `causal` every token sees every other; a window needs `causal`. Raises `UsageError` where shapes do not fit.
    """
    batch, tokens, kv_heads, head_dim = dimensions("k_BThd", k_BThd, 4)
    sizes = attention_sizes(q_BTHd, kv_heads, head_dim)
    expects(
        "k_BThd",
        k_BThd,
        (batch, tokens) == (sizes.batch, sizes.queries),
        f"[{sizes.batch}, {sizes.queries}, h, d]",
    )
    expects("v_BThd", v_BThd, v_BThd.shape == k_BThd.shape, f"{list(k_BThd.shape)} as the keys")
    if window is not None and (window < 1 or not causal):
        raise UsageError(f"a window must be at least 1 token and causal, got {window}, causal={causal}")
    q, k, v = (array.transpose(1, 2) for array in (q_BTHd, k_BThd, v_BThd))
    grouped = sizes.group > 1
    with torch.inference_mode():
        if window is None or window >= tokens:
            y = scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)
            return y.transpose(1, 2).contiguous()
        out_BTHd = torch.empty_like(q_BTHd)
        for start in range(0, tokens, window):  # a band of `window` queries sees at most 2·window − 1 keys
            stop, first = min(start + window, tokens), max(0, start - window + 1)
            ago = torch.arange(start, stop)[:, None] - torch.arange(first, stop)[None, :]
            seen = (ago >= 0) & (ago < window)
            part = scaled_dot_product_attention(
                q[:, :, start:stop],
                k[:, :, first:stop],
                v[:, :, first:stop],
                attn_mask=seen,
                enable_gqa=grouped,
            )
            out_BTHd[:, start:stop] = part.transpose(1, 2)
        return out_BTHd
