"""Which tokens go through the model together: a trace's rows, grouped into passes.

A pass is one trip of a batch through all layers. A prompt's rows pass together; a decoded token passes alone,
beside the tokens of the other sequences of its batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..traces.expert_trace import ExpertTrace


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """P passes over R rows, and where each of S sequences begins and ends in them."""

    rows: NDArray[np.int64]
    """[R] trace rows in the order they are processed."""
    start: NDArray[np.int64]
    """[P + 1] offsets into `rows`."""
    sequence_of_row: NDArray[np.int32]
    """[R] sequence of each entry of `rows`."""
    first_pass: NDArray[np.int64]
    """[S] pass in which a sequence enters: its request is taken to arrive when that pass starts."""
    prompt_pass: NDArray[np.int64]
    """[S] pass that ends its prompt and so yields the first token; −1 where the trace has no prompt rows."""
    last_pass: NDArray[np.int64]
    """[S]"""
    decode_rows: NDArray[np.int64]
    """[S] decoded rows: each yields one token."""
    context: NDArray[np.int64]
    """[R] tokens each row attends to, itself included."""
    scheduling: str

    @property
    def count(self) -> int:
        return len(self.start) - 1

    def tokens(self) -> NDArray[np.int64]:
        """[P] rows in each pass."""
        return np.diff(self.start)

    def sequence_of_pass(self) -> NDArray[np.int32] | None:
        """[P] the sequence that each pass is of; None where a pass has rows of several."""
        first = self.sequence_of_row[self.start[:-1]]
        return first if np.array_equal(np.repeat(first, self.tokens()), self.sequence_of_row) else None

    def context_sum(self) -> NDArray[np.int64]:
        """[P] sum over a pass's rows of the tokens each attends to."""
        return np.add.reduceat(self.context, self.start[:-1])

    def logit_rows(self) -> NDArray[np.int64]:
        """[P] rows whose next token is wanted: the last row of each sequence in a pass (all decoded rows are)."""
        last = np.ones(len(self.rows), bool)
        last[:-1] = self.sequence_of_row[1:] != self.sequence_of_row[:-1]
        last[self.start[1:] - 1] = True
        return np.add.reduceat(last.astype(np.int64), self.start[:-1])


def build_passes(trace: ExpertTrace, batch: int | None = None) -> Passes:
    """Group a trace's rows into passes.

    With `batch=None` the trace's own `step_id` decides where it has one, else one sequence runs at a time.
    With `batch=B`, B sequences run in lockstep: in each step every one of them passes its whole prompt or one
    token, and the next sequence in file order takes the place of a finished one (lowest place first).
    """
    if batch is not None and batch < 1:
        raise UsageError(f"batch must be at least 1, got {batch}")
    sequence = _sequence_of_rows(trace)
    prefill = trace.is_prefill_T if trace.is_prefill_T is not None else np.zeros(trace.num_tokens, bool)
    if batch is None and trace.step_id_T is not None:
        step = _recorded_steps(trace, sequence)
        order = np.lexsort((np.arange(len(step)), step))
        scheduling = "the trace's own steps"
    else:
        step, place = _lockstep(trace, sequence, prefill, batch or 1)
        order = np.lexsort((np.arange(len(step)), place, step))
        scheduling = "one sequence at a time" if (batch or 1) == 1 else f"{batch} sequences in lockstep"
    step, starts = step[order], trace.sequence_start_S
    start = np.concatenate(([0], np.flatnonzero(np.diff(step)) + 1, [len(step)])).astype(np.int64)
    pass_of_row = np.empty(len(step), np.int64)
    pass_of_row[order] = np.repeat(np.arange(len(start) - 1), np.diff(start))
    decode = np.add.reduceat((~prefill).astype(np.int64), starts)
    is_prompt = prefill & _leading(prefill, starts, sequence)
    prompt_pass = np.full(len(starts), -1, np.int64)
    np.maximum.at(prompt_pass, sequence[is_prompt], pass_of_row[is_prompt])
    return Passes(
        rows=order.astype(np.int64),
        start=start,
        sequence_of_row=sequence[order],
        first_pass=np.minimum.reduceat(pass_of_row, starts),
        prompt_pass=prompt_pass,
        last_pass=np.maximum.reduceat(pass_of_row, starts),
        decode_rows=decode,
        context=(np.arange(len(step)) - starts[sequence] + 1)[order],
        scheduling=scheduling,
    )


def _sequence_of_rows(trace: ExpertTrace) -> NDArray[np.int32]:
    lengths = np.diff(np.append(trace.sequence_start_S, trace.num_tokens))
    return np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)


def _leading(
    prefill: NDArray[np.bool_], starts: NDArray[np.int64], sequence: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """True for rows before the first decoded row of their sequence: later prompt rows are another turn."""
    decoded_before = np.cumsum(~prefill)
    at_start: NDArray[np.int64] = decoded_before[starts] - (~prefill)[starts]
    leading: NDArray[np.bool_] = decoded_before == at_start[sequence]
    return leading


def _recorded_steps(trace: ExpertTrace, sequence: NDArray[np.int32]) -> NDArray[np.int64]:
    step = np.asarray(trace.step_id_T)
    back = np.flatnonzero((np.diff(step) < 0) & (np.diff(sequence) == 0))
    if len(back):
        row = int(back[0]) + 1
        raise UsageError(
            f"row {row}: step_id {step[row]} is before step_id {step[row - 1]} of the same sequence's row {row - 1}"
        )
    return step.astype(np.int64)


def _lockstep(
    trace: ExpertTrace, sequence: NDArray[np.int32], prefill: NDArray[np.bool_], batch: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Step and place in the batch of every row."""
    starts = trace.sequence_start_S
    new_chunk = ~prefill
    new_chunk[1:] |= ~prefill[:-1]
    new_chunk[starts] = True
    chunk = np.cumsum(new_chunk) - 1
    chunk_in_sequence = chunk - chunk[starts][sequence]
    chunks = np.maximum.reduceat(chunk_in_sequence, starts) + 1
    if batch == 1:
        first_step = np.concatenate(([0], np.cumsum(chunks)[:-1]))
        return first_step[sequence] + chunk_in_sequence, np.zeros(len(sequence), np.int64)
    free_at = np.zeros(batch, np.int64)
    first_step, place = np.empty(len(starts), np.int64), np.empty(len(starts), np.int64)
    for index in range(len(starts)):
        where = int(np.argmin(free_at))
        first_step[index], place[index] = free_at[where], where
        free_at[where] += chunks[index]
    return first_step[sequence] + chunk_in_sequence, place[sequence]
