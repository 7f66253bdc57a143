"""The integer types expert ids are kept in."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def id_dtype(num_experts: int) -> np.dtype[Any]:
    """The smallest signed type that holds −1 … num_experts − 1.

    Signed, because −1 is padding; eight bits therefore end at 128 experts and sixteen at 32,768
    (verl #7880, NVIDIA-NeMo/RL #3113: ids kept in too few bits wrapped to −1 and looked like padding).
    """
    for dtype in (np.int8, np.int16, np.int32):
        if num_experts - 1 <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    return np.dtype(np.int64)


def as_ids(array: NDArray[np.integer], num_experts: int) -> NDArray[np.integer]:
    """`array` in the smallest safe type; the same object when it is already. The caller has checked the range."""
    return array.astype(id_dtype(num_experts), copy=False)
