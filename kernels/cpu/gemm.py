"""A dense product with stored weights: torch's, and for few rows of tokens one that reads the weights in place."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ...errors import UsageError
from .compiled import plain
from .rows import few_rows_product

FEW_ROWS = {torch.bfloat16: 4, torch.float32: 8}
"""Rows up to which the product in place is the faster one; measured on 2 cores with AVX-512."""


def gemm(x_MK: Tensor, w_NK: Tensor) -> Tensor:
    """y_MN = x wᵀ in the format of x. Raises `UsageError` where shapes or formats do not fit."""
    if x_MK.ndim != 2 or w_NK.ndim != 2 or x_MK.shape[1] != w_NK.shape[1] or x_MK.dtype != w_NK.dtype:
        shapes = f"x {list(x_MK.shape)} {x_MK.dtype}, w {list(w_NK.shape)} {w_NK.dtype}"
        raise UsageError(f"a product needs x [M, K] and w [N, K] of one format, got {shapes}")
    return product(x_MK, w_NK)


def product(x_MK: Tensor, w_NK: Tensor) -> Tensor:
    """The same without the checks."""
    if x_MK.shape[0] > FEW_ROWS.get(x_MK.dtype, 0):
        return torch.nn.functional.linear(x_MK, w_NK)
    return wide_product(x_MK, w_NK).to(x_MK.dtype)


def wide_product(x_MK: Tensor, w_NK: Tensor) -> Tensor:
    """y_MN in fp32, whatever the formats: what a router needs to rank its experts right."""
    rows = x_MK.shape[0]
    if rows > FEW_ROWS.get(w_NK.dtype, 0):
        return torch.nn.functional.linear(x_MK.float(), w_NK.float())
    y_MN = np.empty((rows, w_NK.shape[0]), np.float32)
    few_rows_product(x_MK.float().contiguous().numpy(), plain(w_NK), y_MN)
    return torch.from_numpy(y_MN)
