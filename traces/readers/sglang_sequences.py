"""Which sequence each recorded token belongs to, from its position alone (SGLang's recorder writes no request ids)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

EXTEND, DECODE, MIXED = 1, 2, 3


@dataclass(slots=True)
class _Live:
    """A sequence that is still running: its number, and the position its next token must have."""

    number: int
    next_position: int
    rank: Any
    decoding: bool = False


@dataclass(slots=True)
class Followed:
    """One entry per recorded token, in recording order."""

    sequence: list[int] = field(default_factory=list)
    position: list[int] = field(default_factory=list)
    token: list[int] = field(default_factory=list)
    prefill: list[bool] = field(default_factory=list)
    step: list[int] = field(default_factory=list)
    live: list[_Live] = field(default_factory=list)
    begun: int = 0
    late_starts: int = 0
    cached: int = 0
    doubtful: int = 0

    def notes(self) -> list[str]:
        found = [
            f"{self.begun} sequences were told apart by token positions (the recorder writes no request ids)"
        ]
        if self.cached:
            found.append(
                f"{self.cached} prompts begin after position 0: their cached prefix was not computed"
            )
        if self.late_starts:
            found.append(f"{self.late_starts} sequences were already decoding when the recording began")
        if self.doubtful:
            found.append(
                f"{self.doubtful} tokens could belong to several sequences; the first in the batch was taken"
            )
        return found


def follow(
    state: Followed,
    step: int,
    rank: Any,
    mode: int,
    segments: Sequence[int],
    positions: NDArray[np.int64],
    tokens: NDArray[np.int64],
) -> None:
    """Add one forward pass: `segments` are the lengths of its sequences' parts, in batch order."""
    waiting = [live for live in state.live if live.rank == rank]
    taken: list[_Live] = []
    at = 0
    for length in segments:
        if length == 0:
            continue
        start, prompt = int(positions[at]), mode != DECODE
        fits = [live for live in waiting if live.next_position == start]
        if prompt and start > 0:
            # A chunk goes on with a prompt; in a mixed pass a single token may be a decode.
            fits = [live for live in fits if not live.decoding or (mode == MIXED and length == 1)]
        if start == 0 and prompt:
            fits = []
        if fits:
            live = fits[0]
            waiting.remove(live)
            state.doubtful += (len(fits) > 1) * length
            is_prefill = prompt and not (mode == MIXED and length == 1 and start > 0)
        else:
            live = _Live(state.begun, start, rank)
            state.begun += 1
            state.cached += prompt and start > 0
            state.late_starts += not prompt
            is_prefill = prompt
        live.next_position = start + length
        live.decoding = live.decoding or not is_prefill
        taken.append(live)
        state.sequence += [live.number] * length
        state.position += positions[at : at + length].tolist()
        state.token += tokens[at : at + length].tolist()
        state.prefill += [is_prefill] * length
        state.step += [step] * length
        at += length
    # A decode pass holds every running sequence of its rank: those that are not in it have ended.
    gone = [] if mode == EXTEND else [live for live in waiting if live.decoding or mode == DECODE]
    kept = [live for live in state.live if live not in taken and live not in gone]
    state.live = taken + kept if mode == DECODE else kept + taken
