"""The control of every finding about time: the same steps in another order.

What survives it was not about time: on one public trace permuting the steps alone moved the gap between the best
policy and the oracle from 44.9 to 30.8 % and changed which policy was best (arXiv 2608.07911).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .expert_trace import ExpertTrace


def permute_steps(trace: ExpertTrace, rng: np.random.Generator) -> ExpertTrace:
    """`trace` with its decode steps in a random order; what happens inside a step stays as it was.

    Prompts stay where they are. A decode step only changes places with steps of the same sequences, between the
    same two prompts, so that sequences and batches remain what they were. Where the trace has no step ids, all
    sequences are put into one common order of positions: sequences of equal length that run in lockstep then keep
    their companions in every step, whatever the batch. Loads, and the union of every step that is kept whole, do
    not change. Copies the arrays.
    """
    run_T = _decode_runs(trace)
    if trace.step_id_T is None:
        order, moved = _order_by_position(trace, run_T, rng)
        step_id, what = None, "tokens"
    else:
        order, step_id, moved = _order_by_step(trace, run_T, rng)
        what = "steps"

    def taken(array: NDArray[Any] | None) -> NDArray[Any] | None:
        return None if array is None else array[order]

    return replace(
        trace,
        experts_TLK=trace.experts_TLK[order],
        is_prefill_T=taken(trace.is_prefill_T),
        weights_TLK=taken(trace.weights_TLK),
        predicted_TLHM=taken(trace.predicted_TLHM),
        predicted_scores_TLHM=taken(trace.predicted_scores_TLHM),
        token_ids_T=taken(trace.token_ids_T),
        step_id_T=step_id,
        notes=(*trace.notes, f"control: decode steps permuted at random ({moved} {what} stand elsewhere)"),
    )


def _decode_runs(trace: ExpertTrace) -> NDArray[np.int64]:
    """A number for each stretch of decoded rows of one sequence; −1 for prompt rows."""
    prefill = (
        np.zeros(trace.num_tokens, bool) if trace.is_prefill_T is None else np.asarray(trace.is_prefill_T)
    )
    begins = ~prefill
    begins[1:] &= prefill[:-1]
    begins[trace.sequence_start_S] = ~prefill[trace.sequence_start_S]
    return np.where(prefill, -1, np.cumsum(begins) - 1)


def _order_by_position(
    trace: ExpertTrace, run_T: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], int]:
    """Row order in which every run is sorted by one random key per position in it."""
    rows = np.arange(trace.num_tokens)
    decoded = np.flatnonzero(run_T >= 0)
    if decoded.size == 0:
        return rows, 0
    run = run_T[decoded]
    first = np.flatnonzero(np.r_[True, run[1:] != run[:-1]])
    position = np.arange(run.size) - np.repeat(first, np.diff(np.r_[first, run.size]))
    key = rng.permutation(int(position.max()) + 1)
    order = rows.copy()
    order[decoded] = decoded[np.lexsort((key[position], run))]
    return order, int((order != rows).sum())


def _order_by_step(
    trace: ExpertTrace, run_T: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Row order, new step ids in that order, and how many steps moved."""
    names, step_T = np.unique(np.asarray(trace.step_id_T), return_inverse=True)
    groups: dict[bytes, list[int]] = {}
    by_step = np.lexsort((run_T, step_T))
    bounds = np.flatnonzero(np.r_[True, np.diff(step_T[by_step]) > 0, True])
    for step in range(names.size):
        runs = np.unique(run_T[by_step[bounds[step] : bounds[step + 1]]])
        if runs[0] >= 0:  # a step with prompt rows in it stays
            groups.setdefault(runs.tobytes(), []).append(step)
    place = np.arange(names.size)
    for steps in groups.values():
        place[steps] = rng.permutation(steps)
    new_T = place[step_T]
    lengths = np.diff(np.r_[trace.sequence_start_S, trace.num_tokens])
    sequence_T = np.repeat(np.arange(lengths.size), lengths)
    order = np.lexsort((new_T, sequence_T))  # stable: rows of one step keep their order
    return order, names[new_T[order]].astype(np.int64), int((place != np.arange(names.size)).sum())
