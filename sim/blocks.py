"""Feeds a trace to the engines a block of passes at a time, in one integer type.

A memory-mapped trace is never whole in memory: a block holds some thousand rows, as int32, in processing order.
Small traces are converted once and kept, because a comparison replays the same trace many times.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..traces.expert_trace import ExpertTrace
from .passes import Passes

_ROWS_PER_BLOCK = 4096
_KEPT_BYTES = 64 << 20

WEIGHT_UNIT = 1 << 14
"""Gate weights are whole numbers of this part of a token's weight: sums do not depend on their order."""

_NO_IDS = np.zeros((0, 0, 0), np.int32)
_NO_GUESS = np.zeros((0, 0, 0, 0), np.int32)
_NO_SCORE = np.zeros((0, 0, 0, 0), np.float32)


class Block(NamedTuple):
    """Some whole passes, and the rows of one more pass so that prefetchers can look across the border."""

    experts: NDArray[np.int32]  # [R, L, K], −1 padding
    start: NDArray[np.int64]  # [B + 1 (+ 1)] row offsets of the passes; the one looked ahead at comes last
    last_of_run: NDArray[np.uint8]  # [R] 1: last row of its sequence in its pass
    previous: NDArray[np.int32]  # [R, L, K] experts of the sequence's latest row in an earlier pass, or empty
    predicted: NDArray[np.int32]  # [R, L, H, M], or empty
    scores: NDArray[np.float32]  # [R, L, H, M], or empty
    weights: NDArray[
        np.int32
    ]  # [R, L, K] share of the row's gate weight in the layer × WEIGHT_UNIT, or empty
    sequence: NDArray[np.int32]  # [R] which sequence a row belongs to
    first_pass: int
    passes: int  # B, without the one looked ahead at
    begin: int  # pass of the block to begin with, 0 unless a block is run in two parts


class BlockSource:
    """Iterates over a trace in blocks, as often as wanted.

    `tie_rng` renames the experts of each layer by a drawn permutation. Ties, and the order inside an event, go
    by ascending id, so a run on renamed experts shows whether ties decide anything (counts are unaffected by
    names otherwise).
    """

    def __init__(
        self,
        trace: ExpertTrace,
        passes: Passes,
        *,
        with_previous: bool = False,
        with_predicted: bool = False,
        with_weights: bool = False,
        tie_rng: np.random.Generator | None = None,
    ) -> None:
        self.trace, self.passes = trace, passes
        self._with_previous, self._with_predicted = with_previous, with_predicted
        self._with_weights = with_weights
        self._weighed: BlockSource | None = None
        self._names = self._draw_names(tie_rng)
        self._kept: list[Block] | None = None

    def supplies(self, what: str) -> bool:
        """Whether the blocks hold what a prefetcher needs: `predicted`, `previous`; the rest needs nothing of them."""
        return {"previous": self._with_previous, "predicted": self._with_predicted}.get(what, True)

    def weighed(self) -> BlockSource:
        """The same blocks with gate weights, which the trace must have."""
        if self._with_weights:
            return self
        if self._weighed is None:
            self._weighed = BlockSource(
                self.trace,
                self.passes,
                with_previous=self._with_previous,
                with_predicted=self._with_predicted,
                with_weights=True,
            )
            self._weighed._names = self._names
        return self._weighed

    def _draw_names(self, rng: np.random.Generator | None) -> NDArray[np.int32] | None:
        """[L, N + 1] new name of each expert; the last column keeps −1."""
        if rng is None:
            return None
        names = np.full((self.trace.num_layers, self.trace.num_experts + 1), -1, np.int32)
        for layer in range(self.trace.num_layers):
            names[layer, :-1] = rng.permutation(self.trace.num_experts)
        return names

    def __iter__(self) -> Iterator[Block]:
        if self._kept is not None:
            yield from self._kept
            return
        small = self._bytes_when_converted() <= _KEPT_BYTES
        kept: list[Block] = []
        first = 0
        while first < self.passes.count:
            limit = self.passes.start[first] + _ROWS_PER_BLOCK
            after = max(first + 1, int(np.searchsorted(self.passes.start, limit, side="right")) - 1)
            block = self._make(first, min(after, self.passes.count))
            first += block.passes
            if small:
                kept.append(block)
            yield block
        if small:
            self._kept = kept

    def _bytes_when_converted(self) -> int:
        a_row = self.trace.num_layers * self.trace.top_k * 4 * (1 + self._with_previous + self._with_weights)
        if self._with_predicted and self.trace.predicted_TLHM is not None:
            a_row += int(np.prod(self.trace.predicted_TLHM.shape[1:])) * 8
        return a_row * len(self.passes.rows)

    def _make(self, first: int, after: int) -> Block:
        passes = self.passes
        ahead = min(after + 1, passes.count)
        low, high = int(passes.start[first]), int(passes.start[ahead])
        rows = passes.rows[low:high]
        runs = passes.sequence_of_row[low:high]
        start = passes.start[first : ahead + 1] - low
        last = np.ones(len(rows), np.uint8)
        last[:-1] = runs[1:] != runs[:-1]
        last[start[1:] - 1] = 1
        previous, predicted, scores = _NO_IDS, _NO_GUESS, _NO_SCORE
        if self._with_previous:
            previous = self._previous(rows, last)
        if self._with_predicted and self.trace.predicted_TLHM is not None:
            predicted = self._renamed_guess(self._ids(self.trace.predicted_TLHM, rows))
            if self.trace.predicted_scores_TLHM is not None:
                scores = np.asarray(self.trace.predicted_scores_TLHM[rows], np.float32)
        experts = self._renamed(self._ids(self.trace.experts_TLK, rows))
        weights = self._shares(rows) if self._with_weights else _NO_IDS
        return Block(
            experts,
            start,
            last,
            previous,
            predicted,
            scores,
            weights,
            np.ascontiguousarray(runs),
            first,
            after - first,
            0,
        )

    def _shares(self, rows: NDArray[np.int64]) -> NDArray[np.int32]:
        assert self.trace.weights_TLK is not None
        weight = np.asarray(self.trace.weights_TLK[rows], np.float64)
        total = weight.sum(axis=2, keepdims=True)
        share = np.divide(weight, total, out=np.zeros_like(weight), where=total > 0)
        whole: NDArray[np.int32] = np.rint(share * WEIGHT_UNIT).astype(np.int32)
        return whole

    def _previous(self, rows: NDArray[np.int64], last: NDArray[np.uint8]) -> NDArray[np.int32]:
        """Only the first row of a run in a pass has a latest row in an *earlier* pass."""
        first_of_run = np.ones(len(rows), bool)
        first_of_run[1:] = last[:-1] == 1
        known = first_of_run & ~np.isin(rows, self.trace.sequence_start_S)
        previous = np.full((len(rows), *self.trace.experts_TLK.shape[1:]), -1, np.int32)
        previous[known] = self._renamed(self._ids(self.trace.experts_TLK, rows[known] - 1))
        return previous

    @staticmethod
    def _ids(array: NDArray[np.integer], rows: NDArray[np.int64]) -> NDArray[np.int32]:
        contiguous = (
            len(rows) > 0 and rows[-1] - rows[0] == len(rows) - 1 and bool((np.diff(rows) == 1).all())
        )
        part = array[rows[0] : rows[-1] + 1] if contiguous else array[rows]
        return np.ascontiguousarray(part, np.int32)

    def _renamed(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        if self._names is None:
            return ids
        return self._names[np.arange(ids.shape[1])[None, :, None], ids]

    def _renamed_guess(self, ids: NDArray[np.int32]) -> NDArray[np.int32]:
        if self._names is None:
            return ids
        layer = np.arange(ids.shape[1])[:, None] + 1 + np.arange(ids.shape[2])[None, :]
        layer = np.minimum(layer, ids.shape[1] - 1)  # beyond the last layer the guess is −1 and stays −1
        renamed: NDArray[np.int32] = self._names[layer[None, :, :, None], ids]
        return renamed
