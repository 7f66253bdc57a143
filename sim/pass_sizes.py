"""Each pass in numbers: its tokens, its sequences, what they attend to.

What an attention layer reads depends on who shares a pass: T tokens of S sequences whose contexts sum to A. Each
sequence is taken to bring T / S consecutive tokens; exact for prompts alone, for decoding, and for equal chunks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Seconds = NDArray[np.float64]


class PassSizes:
    """Tokens, sequences, contexts, rows that need logits. All [P] floats."""

    def __init__(self, tokens: NDArray[np.int64], context_sum: NDArray[np.int64], head_rows: NDArray[np.int64]) -> None:
        self.tokens = tokens.astype(np.float64)
        self.head_rows = head_rows.astype(np.float64)
        # every sequence of a pass needs the logits of its last row, so rows with logits count sequences
        self.sequences = np.maximum(self.head_rows, 1.0)
        self.rows = self.tokens / self.sequences
        mean = context_sum / np.maximum(self.tokens, 1.0)
        self.first = np.maximum(mean - (self.rows - 1) / 2, 1.0)
        self.last = mean + (self.rows - 1) / 2
        self.context_sum = context_sum.astype(np.float64)

    def attended(self, window: int | None) -> Seconds:
        """Pairs of a token and one it attends to."""
        if window is None:
            return self.context_sum
        inside = np.clip(window - self.first + 1, 0, self.rows)  # rows whose context is no longer than the window
        pairs = inside * (self.first + (inside - 1) / 2) + (self.rows - inside) * window
        return np.asarray(self.sequences * pairs)

    def cached(self, window: int | None) -> Seconds:
        """Distinct cached tokens that the pass reads."""
        reach = self.last if window is None else np.minimum(self.last, window + self.rows - 1)
        return np.asarray(self.sequences * reach)
