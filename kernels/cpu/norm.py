"""RMS norm of rows, plain or with the residual's addition, in one pass over memory."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import torch
from torch import Tensor

from ...errors import UsageError
from .compiled import bf16_bits, load, parallel, plain

Array = Any


def norm(x_TD: Tensor, weight_D: Tensor, residual_TD: Tensor | None = None, *, eps: float = 1e-6) -> Tensor:
    """y_TD = x / √(mean(x²) + eps) · weight. With a residual, x + residual is normed and written back into the residual.

    Raises `UsageError` where shapes or formats do not fit.
    """
    if x_TD.ndim != 2 or weight_D.shape != x_TD.shape[1:] or weight_D.dtype != x_TD.dtype:
        raise UsageError(
            f"a norm needs x [T, D] and weight [D], got {list(x_TD.shape)} and {list(weight_D.shape)}"
        )
    with torch.inference_mode():
        if residual_TD is not None:
            x_TD = residual_TD.add_(x_TD)
        y_TD = torch.empty_like(x_TD, memory_format=torch.contiguous_format)
        rows = _norm_bf16 if x_TD.dtype == torch.bfloat16 else _norm_fp32
        rows(plain(x_TD), plain(weight_D), np.float32(eps), plain(y_TD))
        return y_TD


@parallel
def _norm_fp32(x_TD: Array, weight_D: Array, eps: np.float32, y_TD: Array) -> None:
    for t in numba.prange(x_TD.shape[0]):
        row, out = x_TD[t], y_TD[t]
        total = np.float32(0.0)
        for i in range(row.shape[0]):
            total += row[i] * row[i]
        scale = np.float32(1.0) / np.sqrt(total / np.float32(row.shape[0]) + eps)
        for i in range(row.shape[0]):
            out[i] = row[i] * scale * weight_D[i]


@parallel
def _norm_bf16(x_TD: Array, weight_D: Array, eps: np.float32, y_TD: Array) -> None:
    for t in numba.prange(x_TD.shape[0]):
        row, out = x_TD[t], y_TD[t]
        total = np.float32(0.0)
        for i in range(row.shape[0]):
            value = load(row[i])
            total += value * value
        scale = np.float32(1.0) / np.sqrt(total / np.float32(row.shape[0]) + eps)
        for i in range(row.shape[0]):
            out[i] = bf16_bits(load(row[i]) * scale * load(weight_D[i]))
