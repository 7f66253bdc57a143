"""From loose rows (one token in one layer each) to a trace: sorting, checking, padding. Used by every row format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputFileError, UsageError
from ..expert_trace import PADDING, ExpertTrace
from ..ids import as_ids
from .options import ReadOptions
from .source import Source

DECODE, PREFILL, UNSAID = 0, 1, -1
MOST_PADDING, LARGEST_PADDING = 1 << 24, 16
"""Rows are padded to one width; a file may not turn a few long rows, or a claimed top-k, into that much memory."""
PHASES = {"decode": DECODE, "generated": DECODE, "prefill": PREFILL, "prompt": PREFILL}
"""Both vocabularies in use: of the engines (prefill, decode) and of moe-cache-lab (prompt, generated)."""


@dataclass(slots=True)
class Facts:
    """What a file says of itself as a whole; None where it does not."""

    model: str | None = None
    source: str | None = None
    licence: str | None = None
    synthetic: bool = False
    num_experts: int | None = None
    top_k: int | None = None
    num_layers: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Columns:
    """R rows as arrays. `counts_R` says how many of `ids` (and of `weights`) belong to each row."""

    place: str
    """What a row is called in errors: `line` or `row`."""
    line_R: NDArray[np.int64]
    sequence_R: NDArray[np.int64]
    """Codes: equal for rows of one sequence, ascending in the order sequences should have."""
    token_R: NDArray[np.int64]
    layer_R: NDArray[np.int64]
    counts_R: NDArray[np.int64]
    ids: NDArray[np.integer]
    weights: NDArray[np.float32] | None = None
    phase_R: NDArray[np.int8] | None = None
    token_id_R: NDArray[np.int64] | None = None
    step_R: NDArray[np.int64] | None = None
    sequence_names: Sequence[Any] = field(default=())


def assemble(
    source: Source, options: ReadOptions, facts: Facts, columns: Columns, notes: list[str]
) -> ExpertTrace:
    """The trace of these rows. Raises `InputFileError` naming the line for every row that cannot be.

    Rows are sorted by sequence, token and layer; tokens and layers that hold nothing but padding (−1) are left out
    (they are no accesses, cases B04 and B06). All of it is said in the notes. Rows of another length than the
    others are an error; with `lenient` they are padded.
    """
    table = _Table(source, options, facts, columns, notes)
    table.pad()
    table.sort()
    table.to_grid()
    table.drop_empty()
    return table.trace()


class _Table:
    """The steps of `assemble`, in the order they run; arrays are [R, …] until `to_grid`, then [T, L, …]."""

    def __init__(
        self, source: Source, options: ReadOptions, facts: Facts, columns: Columns, notes: list[str]
    ) -> None:
        self.source, self.options, self.facts, self.columns, self.notes = (
            source,
            options,
            facts,
            columns,
            notes,
        )
        if columns.line_R.size == 0:
            raise InputFileError(source.path, "holds no routing rows")

    def fail(self, row: int, what: str) -> InputFileError:
        return InputFileError(self.source.path, what, f"{self.columns.place} {self.columns.line_R[row]}")

    def pad(self) -> None:
        """`ids` and `weights` as [R, K] with −1 and 0 where a row has less; every id checked."""
        columns, facts = self.columns, self.facts
        counts = columns.counts_R
        top_k = facts.top_k or int(counts.max())
        if top_k == 0:
            raise InputFileError(self.source.path, "no row names an expert")
        mixed = counts > top_k if self.options.lenient else counts != (facts.top_k or counts[0])
        if mixed.any():
            row = int(np.argmax(mixed))
            expected = f"top_k is {top_k}" if facts.top_k else f"the first row has {counts[0]}"
            raise self.fail(
                row, f"{counts[row]} experts, but {expected} (a row that used fewer is filled up with -1)"
            )
        if counts.size * top_k > max(MOST_PADDING, LARGEST_PADDING * columns.ids.size):
            row = int(counts.argmax())
            raise self.fail(
                row,
                f"top_k would be {top_k} (this row has {counts[row]} experts), but rows have "
                f"{columns.ids.size / counts.size:.1f} on average",
            )
        filled = np.arange(top_k) < counts[:, None]
        self.num_experts = self._num_experts()
        bad = (columns.ids < PADDING) | (columns.ids >= self.num_experts)
        if bad.any():
            at = int(np.argmax(bad))
            row = int(np.searchsorted(np.cumsum(counts), at, side="right"))
            raise self.fail(
                row,
                f"{columns.ids[at]} is not an expert id (0 to {self.num_experts - 1}, or -1 for padding)"
                + (
                    "; ids that were kept in too few bits wrap to negative ones"
                    if columns.ids[at] < 0
                    else ""
                ),
            )
        self.ids = np.full(filled.shape, PADDING, dtype=as_ids(columns.ids[:0], self.num_experts).dtype)
        self.ids[filled] = columns.ids
        ordered = np.sort(self.ids, axis=1)
        twice = ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != PADDING)).any(axis=1)
        if twice.any():
            row = int(np.argmax(twice))
            raise self.fail(row, f"one expert stands twice in the top-k {self.ids[row].tolist()}")
        self.notes += short_rows(self.ids)
        self.weights: NDArray[np.float32] | None = None
        if columns.weights is not None:
            wrong = ~np.isfinite(columns.weights)
            if wrong.any():
                at = int(np.argmax(wrong))
                row = int(np.searchsorted(np.cumsum(counts), at, side="right"))
                raise self.fail(row, f"the weight {columns.weights[at]} is not a finite number")
            self.weights = np.zeros(filled.shape, np.float32)
            self.weights[filled] = columns.weights
            self.weights[self.ids == PADDING] = 0

    def _num_experts(self) -> int:
        said, asked = self.facts.num_experts, self.options.num_experts
        if said is not None and asked is not None and said != asked:
            raise InputFileError(self.source.path, f"says num_experts is {said}, but {asked} was asked for")
        known = said or asked
        if known is not None:
            return known
        ids = self.columns.ids
        found = int(ids.max(initial=0)) + 1
        self.notes.append(
            f"the file does not say how many experts a layer has; {found} is the largest id + 1 "
            "(give num_experts if there are more: shares of capacity depend on it)"
        )
        return found

    def sort(self) -> None:
        columns = self.columns
        keys = (columns.layer_R, columns.token_R, columns.sequence_R)
        order = np.lexsort(keys)
        if (order[1:] < order[:-1]).any():
            self.notes.append("rows were sorted by sequence, token and layer")
        self.order = order
        self.sequence, self.token, self.layer = (key[order] for key in reversed(keys))
        same = (
            (self.sequence[1:] == self.sequence[:-1])
            & (self.token[1:] == self.token[:-1])
            & (self.layer[1:] == self.layer[:-1])
        )
        if same.any():
            at = int(np.argmax(same))
            lines = sorted(int(columns.line_R[order[i]]) for i in (at, at + 1))
            raise InputFileError(
                self.source.path,
                f"{self._token_name(at)}, layer {self.layer[at]} stands here and in {columns.place} {lines[0]}",
                f"{columns.place} {lines[1]}",
            )

    def _token_name(self, at: int) -> str:
        names, code = self.columns.sequence_names, int(self.sequence[at])
        return f"sequence {names[code] if len(names) else code}, token {self.token[at]}"

    def to_grid(self) -> None:
        """Row numbers as [T, L]. A token that lacks a layer is an error, unless all it has is padding."""
        new = np.ones(self.order.size, bool)
        new[1:] = (self.sequence[1:] != self.sequence[:-1]) | (self.token[1:] != self.token[:-1])
        first_T = np.flatnonzero(new)
        token_of_row = np.cumsum(new) - 1
        self.layers = np.unique(self.layer)
        self._check_layers()
        missing_T = np.bincount(token_of_row, minlength=first_T.size) < self.layers.size
        if missing_T.any():
            blank = (self.ids[self.order] == PADDING).all(axis=1)
            real_T = np.bincount(token_of_row, weights=~blank, minlength=first_T.size) > 0
            torn = missing_T & real_T
            if torn.any() and not self.options.lenient:
                token = int(np.argmax(torn))
                gone = np.setdiff1d(self.layers, self.layer[token_of_row == token]).tolist()
                raise self.fail(
                    int(self.order[first_T[token]]),
                    f"{self._token_name(int(first_T[token]))} has no row for layer{'s' * (len(gone) > 1)} "
                    f"{', '.join(map(str, gone[:8]))}{' …' * (len(gone) > 8)}",
                )
            if torn.any():
                self.notes.append(f"{int(torn.sum())} tokens without a row for every layer were skipped")
            self.notes += (
                [f"{int((missing_T & ~real_T).sum())} padding tokens lack some layers; they are left out"]
                if (missing_T & ~real_T).any()
                else []
            )
        first_T = first_T[~missing_T]
        if first_T.size == 0:
            raise InputFileError(self.source.path, "no token has a row for every layer")
        # Whole tokens only, sorted by layer within each: the rows are the grid already.
        self.rows = self.order[~missing_T[token_of_row]].reshape(first_T.size, self.layers.size)
        self.first_T = first_T

    def _check_layers(self) -> None:
        found, stated = self.layers, self.facts.num_layers
        if stated is not None and found[-1] >= stated and found.size != stated:
            row = int(self.order[np.argmax(self.layer == found[-1])])
            raise self.fail(row, f"layer {found[-1]}, but num_layers is {stated}")
        if stated is not None and found[-1] < stated and found.size < stated:
            dense = sorted(set(range(stated)) - set(found.tolist()))
            self.notes.append(f"layers {ranges(dense)} of {stated} have no experts (dense layers)")

    def drop_empty(self) -> None:
        """Leave out tokens and layers in which every slot is padding."""
        full = (self.ids != PADDING).any(axis=1)[self.rows]
        tokens, layers = full.any(axis=1), full.any(axis=0)
        if not tokens.any():
            raise InputFileError(self.source.path, "every row is padding (-1)")
        if not tokens.all():
            self.notes.append(
                f"{int((~tokens).sum())} padding rows (-1 in every slot) are no tokens and are left out"
            )
        if not layers.all():
            gone = self.layers[~layers].tolist()
            self.notes.append(f"layers {ranges(gone)} hold only padding: they have no experts (dense layers)")
        self.rows, self.first_T, self.layers = (
            self.rows[tokens][:, layers],
            self.first_T[tokens],
            self.layers[layers],
        )

    def _per_token(self, column: NDArray[Any] | None, name: str) -> NDArray[Any] | None:
        """One value a token from a column of rows; rows of one token must agree."""
        if column is None:
            return None
        grid = column[self.rows]
        differ = (grid != grid[:, :1]).any(axis=1)
        if differ.any():
            token = int(np.argmax(differ))
            layer = int(np.argmax(grid[token] != grid[token, 0]))
            raise self.fail(
                int(self.rows[token, layer]),
                f"{name} differs between the layers of one token ({grid[token, 0]} and {grid[token, layer]})",
            )
        return np.ascontiguousarray(grid[:, 0])

    def trace(self) -> ExpertTrace:
        columns, facts = self.columns, self.facts
        phase = self._per_token(columns.phase_R, "phase")
        if phase is not None and (phase == UNSAID).any():
            self.notes.append(
                f"{int((phase == UNSAID).sum())} tokens do not say their phase; phases are not used"
            )
            phase = None
        sequence = self.sequence[self.first_T]
        starts = np.flatnonzero(np.r_[True, sequence[1:] != sequence[:-1]]).astype(np.int64)
        token_ids = self._per_token(columns.token_id_R, "token_id")
        try:
            return ExpertTrace(
                experts_TLK=self.ids[self.rows],
                layer_ids_L=self.layers.astype(np.int32),
                num_experts=self.num_experts,
                sequence_start_S=starts,
                model=facts.model or "unknown",
                source=facts.source or self.source.path.name,
                licence=facts.licence or "unknown",
                synthetic=facts.synthetic,
                is_prefill_T=None if phase is None else phase == PREFILL,
                weights_TLK=None if self.weights is None else self.weights[self.rows],
                token_ids_T=None if token_ids is None else token_ids.astype(np.int32),
                step_id_T=self._per_token(columns.step_R, "step"),
                notes=(*facts.notes, *self.notes),
            )
        except InputFileError:
            raise
        except UsageError as error:
            raise InputFileError(self.source.path, str(error)) from error


def short_rows(ids: NDArray[np.integer]) -> list[str]:
    """A note on rows that hold both experts and padding: each real id counts as one access (case B04)."""
    real = ids != PADDING
    short = int((real.any(axis=-1) & ~real.all(axis=-1)).sum())
    return [f"{short} rows use fewer than {ids.shape[-1]} experts; -1 is no access"] if short else []


def ranges(numbers: Sequence[int]) -> str:
    """`0-2, 7` for 0, 1, 2, 7."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)
