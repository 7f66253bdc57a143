"""`ExpertTrace`: which experts each token used in each mixture-of-experts layer.

Shape letters, here and everywhere: T token rows, L MoE layers, K experts a token (top-k), H layers looked
ahead, M experts guessed a layer, S sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

PADDING = -1
MOST_EXPERTS = 1 << 20
"""More experts a layer, or layers, than this are a broken file: tables of that size are made from them."""
SLICE_VALUES = 1 << 22
WIDE = 32


@dataclass(frozen=True, slots=True, eq=False)
class ExpertTrace:
    """A frozen record of routing. Arrays may be read-only memory maps; nothing here copies them.

    Rows are ordered by sequence, then by position in it. Rows of one sequence are contiguous.
    """

    experts_TLK: NDArray[np.integer]
    """Routed expert ids, 0 … num_experts−1 inside each layer; −1 pads a row that used fewer than K."""
    layer_ids_L: NDArray[np.int32]
    """The model's own numbers of its MoE layers, ascending (dense layers are absent, not empty)."""
    num_experts: int
    """Routed experts per MoE layer (shared experts are not routed and not counted)."""
    sequence_start_S: NDArray[np.int64]
    """First row of each sequence; starts with 0."""
    model: str
    source: str
    licence: str
    synthetic: bool
    is_prefill_T: NDArray[np.bool_] | None = None
    """Which rows were prompt tokens; None where the source does not say (rows then count as decode)."""
    weights_TLK: NDArray[np.floating] | None = None
    """Gate weights that go with `experts_TLK`; NaN never, 0 where the id is padding."""
    predicted_TLHM: NDArray[np.integer] | None = None
    """`[t, l, h]`: experts guessed at layer index l for layer index l + h + 1, best first; −1 = no guess."""
    predicted_scores_TLHM: NDArray[np.floating] | None = None
    token_ids_T: NDArray[np.int32] | None = None
    step_id_T: NDArray[np.int64] | None = None
    """Tokens with equal step ids passed through the model together; None where the source does not say."""
    notes: tuple[str, ...] = field(default=())
    """What a reader found and did (dropped rows, trimmed columns): shown by `trace info` and in reports."""

    @property
    def num_tokens(self) -> int:
        return int(self.experts_TLK.shape[0])

    @property
    def num_layers(self) -> int:
        return int(self.experts_TLK.shape[1])

    @property
    def top_k(self) -> int:
        return int(self.experts_TLK.shape[2])

    @property
    def num_sequences(self) -> int:
        return int(self.sequence_start_S.shape[0])

    def __post_init__(self) -> None:
        shape = self.experts_TLK.shape
        if len(shape) != 3 or min(shape) < 1:
            raise UsageError(
                f"experts must have shape [tokens, layers, top_k] with none zero, got {list(shape)}"
            )
        if not np.issubdtype(self.experts_TLK.dtype, np.integer):
            raise UsageError(f"experts must be integers, got {self.experts_TLK.dtype}")
        if not self.top_k <= self.num_experts <= MOST_EXPERTS:
            raise UsageError(
                f"num_experts must be from top_k={self.top_k} to {MOST_EXPERTS}, got {self.num_experts}"
            )
        self._check_layers_and_sequences()
        rows = self.num_tokens
        for name, array, expected in (
            ("is_prefill", self.is_prefill_T, (rows,)),
            ("weights", self.weights_TLK, shape),
            ("token_ids", self.token_ids_T, (rows,)),
            ("step_id", self.step_id_T, (rows,)),
        ):
            if array is not None and array.shape != expected:
                raise UsageError(f"{name} must have shape {list(expected)}, got {list(array.shape)}")
        guess, scores = self.predicted_TLHM, self.predicted_scores_TLHM
        if guess is not None and (guess.ndim != 4 or guess.shape[:2] != shape[:2]):
            raise UsageError(f"predicted must have shape [{rows}, {shape[1]}, H, M], got {list(guess.shape)}")
        if scores is not None and (guess is None or scores.shape != guess.shape):
            raise UsageError("predicted_scores must have the shape of predicted")

    def _check_layers_and_sequences(self) -> None:
        layers, starts = self.layer_ids_L, self.sequence_start_S
        if layers.shape != (self.num_layers,):
            raise UsageError(f"layer_ids must name {self.num_layers} layers, got {layers.shape[0]}")
        if (layers[1:] <= layers[:-1]).any() or layers[0] < 0:
            raise UsageError(f"layer_ids must be ascending and not negative, got {layers.tolist()}")
        if (
            starts.size == 0
            or starts[0] != 0
            or (starts[1:] <= starts[:-1]).any()
            or starts[-1] >= self.num_tokens
        ):
            raise UsageError(f"sequence starts must ascend from 0 and stay below {self.num_tokens}")

    def check_ids(self) -> None:
        """Read every value once and raise `UsageError` naming the first that is wrong.

        Wrong are: ids outside −1 … num_experts−1 (case B05), one expert twice in a row's top-k or in one guess,
        weights or scores that are no finite numbers, negative token ids. Works in slices, so that a memory-mapped
        trace is never whole in memory.
        """
        self._check_experts("", self.experts_TLK)
        if self.predicted_TLHM is not None:
            for ahead in range(self.predicted_TLHM.shape[2]):
                self._check_experts(f"guess {ahead + 1} layers ahead, ", self.predicted_TLHM[:, :, ahead])
        for name, values in (("weights", self.weights_TLK), ("predicted_scores", self.predicted_scores_TLHM)):
            if values is None:
                continue
            if not np.issubdtype(values.dtype, np.floating):
                raise UsageError(f"{name} must be floating-point numbers, got {values.dtype}")
            for first, block in slices(values):
                if not np.isfinite(block).all():
                    place = [int(i) for i in np.argwhere(~np.isfinite(block))[0]]
                    raise UsageError(
                        f"row {first + place[0]}, layer {self.layer_ids_L[place[1]]}: {block[tuple(place)]} among the "
                        f"{name} is not a finite number"
                    )
        if self.token_ids_T is not None and (self.token_ids_T < 0).any():
            row = int(np.argmax(self.token_ids_T < 0))
            raise UsageError(f"row {row}: {self.token_ids_T[row]} is not a token id")

    def _check_experts(self, what: str, ids_TLK: NDArray[np.integer]) -> None:
        for first, block in slices(ids_TLK):
            bad = block >= self.num_experts
            if block.dtype.kind == "i":
                bad |= block < PADDING
            if bad.any():
                row, layer, column = (int(i) for i in np.argwhere(bad)[0])
                raise UsageError(
                    f"row {first + row}, layer {self.layer_ids_L[layer]}, {what}column {column}: "
                    f"{block[row, layer, column]} is not an expert id (0 to {self.num_experts - 1}, or -1 for padding)"
                )
            twice = repeats(block)
            if twice.any():
                row, layer = (int(i) for i in np.argwhere(twice)[0])
                raise UsageError(
                    f"row {first + row}, layer {self.layer_ids_L[layer]}: {what}one expert stands twice in "
                    f"{block[row, layer].tolist()}"
                )


def slices(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """The array in blocks of rows of some megabytes, each with its first row: a mapped file passes through memory."""
    rows = max(1, SLICE_VALUES // max(1, int(np.prod(array.shape[1:]))))
    for first in range(0, array.shape[0], rows):
        yield first, np.asarray(array[first : first + rows])


def repeats(ids: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Which rows (all axes but the last) hold one expert twice; padding may repeat."""
    top_k = ids.shape[-1]
    if top_k > WIDE:
        ordered = np.sort(ids, axis=-1)
        same = (ordered[..., 1:] == ordered[..., :-1]) & (ordered[..., 1:] != PADDING)
        return np.asarray(same.any(axis=-1))
    # Column against column is many times quicker than sorting rows of a few ids.
    columns = [np.ascontiguousarray(ids[..., column]) for column in range(top_k)]
    found = np.zeros(ids.shape[:-1], bool)
    for right in range(1, top_k):
        same = np.zeros(found.shape, bool)
        for left in range(right):
            same |= columns[right] == columns[left]
        found |= same & (columns[right] != PADDING)
    return found
