"""What a prefetcher is asked, and how it answers: experts it wants, in order, without repeats."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..compiled import inlined

MANY, FIRST_NEXT_PASS = 0, 1  # columns of Wanted.size


class Wanted(NamedTuple):
    """An answer, filled anew each time."""

    expert: NDArray[np.int32]  # [F]
    seen: NDArray[np.uint8]  # [n] zeros between answers
    score: NDArray[np.float64]  # [N] scratch of a prefetcher that ranks a layer's experts
    size: NDArray[np.int64]  # [2] how many; from which index on they are for the next pass


def new_wanted(num_experts_in_all: int, num_experts: int) -> Wanted:
    return Wanted(
        expert=np.zeros(num_experts_in_all, np.int32),
        seen=np.zeros(num_experts_in_all, np.uint8),
        score=np.zeros(num_experts),
        size=np.zeros(2, np.int64),
    )


@inlined
def want(wanted: Any, x: int) -> None:
    if wanted.seen[x] == 0:
        wanted.seen[x] = 1
        wanted.expert[wanted.size[MANY]] = x
        wanted.size[MANY] += 1


@inlined
def close(wanted: Any, is_next_pass: bool) -> None:
    """End an answer: all of it is for one layer, of this pass or of the next."""
    wanted.size[FIRST_NEXT_PASS] = 0 if is_next_pass else wanted.size[MANY]
    for i in range(wanted.size[MANY]):
        wanted.seen[wanted.expert[i]] = 0


@inlined
def shuffled_bits(seed: int, pass_number: int, layer: int, expert: int) -> float:
    """A number in [0, 1) that depends only on its arguments (splitmix64, Steele 2014): no call order in it."""
    z = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(pass_number) * np.uint64(0xD1B54A32D192ED03)
    z += np.uint64(layer) * np.uint64(0x8CB92BA72F3D8DD7)
    z += np.uint64(expert + 1) * np.uint64(0xABC98388FB8FAC03)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.float64(z >> np.uint64(11)) * (1.0 / 9007199254740992.0)  # 53 bits
