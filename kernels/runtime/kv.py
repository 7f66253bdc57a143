"""Keys and values of all sequences of a run, and which of them the rows of a pass read and write.

Each sequence owns consecutive pages of each layer's cache, enough for all of its tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from .weights import Weights

if TYPE_CHECKING:
    from torch import Tensor

PAGE_TOKENS = 16


class Chunk(NamedTuple):
    """Several rows of one sequence that pass together: rows low … high−1, tokens `begin` … `end`−1 of the sequence."""

    low: int
    high: int
    first_entry: int
    """Where the sequence's keys begin in the flat cache."""
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class PassRows:
    """What attention must know of one pass of T rows."""

    positions_T: Tensor
    entries_T: Tensor
    """Where each row's key and value go in the flat cache."""
    single_B: Tensor
    """Rows that pass alone for their sequence."""
    tables_BX: Tensor
    lengths_B: Tensor
    spans_B: tuple[tuple[int, int], ...]
    """Where each one's sequence begins in the flat cache, and how many tokens it attends to."""
    chunks: tuple[Chunk, ...]
    last_R: Tensor
    """The last row of each sequence in the pass: whose next token is wanted."""


class KvCache:
    """Pages of keys and values, [P, G, h, d] a layer, for sequences of the given lengths."""

    def __init__(self, weights: Weights, lengths_S: NDArray[np.int64]) -> None:
        pages_S = -(-lengths_S // PAGE_TOKENS)
        self.first_page_S = np.concatenate(([0], np.cumsum(pages_S)[:-1]))
        self._pages_S = pages_S
        self._device = weights.device
        shapes = [
            (int(pages_S.sum()), PAGE_TOKENS, layer.attention.kv_heads, layer.attention.head_dim)
            for layer in weights.layers
        ]
        self.keys = [torch.zeros(shape, dtype=weights.dtype, device=weights.device) for shape in shapes]
        self.values = [torch.zeros_like(keys) for keys in self.keys]

    def rows_of(self, sequence_T: NDArray[np.integer], position_T: NDArray[np.int64]) -> PassRows:
        """`sequence_T` and `position_T` (from 0) of a pass's rows; rows of a sequence are consecutive and ascending."""
        borders = np.flatnonzero(np.diff(sequence_T)) + 1
        lows, highs = np.r_[0, borders], np.r_[borders, len(sequence_T)]
        entries = self.first_page_S[sequence_T] * PAGE_TOKENS + position_T
        alone = highs - lows == 1
        single = lows[alone]
        owners = sequence_T[single]
        width = int(self._pages_S[owners].max()) if len(single) else 1
        tables = self.first_page_S[owners][:, None] + np.arange(width)[None, :]
        tables = np.minimum(tables, (self.first_page_S + self._pages_S - 1)[owners][:, None])
        chunks = tuple(
            Chunk(
                int(low), int(high), int(self.first_page_S[sequence_T[low]]) * PAGE_TOKENS,
                int(position_T[low]), int(position_T[high - 1]) + 1,
            )
            for low, high in zip(lows[~alone], highs[~alone], strict=True)
        )  # fmt: skip

        spans = tuple(
            (int(self.first_page_S[owner]) * PAGE_TOKENS, int(position) + 1)
            for owner, position in zip(owners, position_T[single], strict=True)
        )

        def there(array: NDArray[np.integer]) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(array, np.int64)).to(self._device)

        return PassRows(
            there(position_T), there(entries), there(single), there(tables), there(position_T[single] + 1), spans, chunks,
            there(highs - 1),
        )  # fmt: skip
