"""Twins: measured shapes that do the very same work on the device, divided otherwise over batch, heads and ranks.

Attention over a batch of 2·B with half of the KV heads (and of the heads) launches the same blocks over the same bytes
as over B; the experts of a rank with `width / tp` columns do not know of how wide a layer they are a part. Only an index
differs, so a twin's time is the best guess that there is, kernel switches and split heuristics included.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .grids import Grid

Floats = NDArray[np.float64]
NONE = 9.0
"""Doublings to the nearest twin where there is none: further than any."""


def twins(grid: Grid, shapes: Floats, guess: Floats) -> Floats | None:
    """[S, A·B, 2] for shapes [S, …]: twins' mean log ratio minus `guess` [S, A·B], doublings to the nearest.

    A shape is no twin of itself, so shapes of the grid are judged by others alone. None: the operation knows no twins.
    """
    named = {name: i for i, name in enumerate(grid.axes.shape)}
    if grid.axes.operation in ("attention_prefill", "attention_decode"):
        part, of, moves = named["kv_heads"], named["heads"], True
    elif grid.axes.operation == "moe":
        part, of, moves = named["tp"], named["width"], False
    else:
        return None
    size = (len(grid.a), len(grid.b))
    measured = grid.ratio.reshape(-1, *size)
    steps = np.log2(np.asarray(grid.a, np.float64)) if moves else np.zeros(0)
    mine, theirs = _same(shapes, part, of), _same(grid.shapes, part, of)
    near = np.full((len(shapes), *size), NONE)
    apart = np.log2(shapes[:, part])[:, None] - np.log2(grid.shapes[:, part])[None]
    total, weight = np.zeros(near.shape), np.zeros(near.shape)
    for shape in range(len(shapes)):
        for other in np.flatnonzero((theirs == mine[shape]).all(axis=1) & (apart[shape] != 0.0)):
            shift = float(apart[shape, other])
            here, there = _places(steps, shift) if moves else (np.arange(size[0]), np.arange(size[0]))
            found = measured[other, there]
            known = np.isfinite(found)
            total[shape, here] += np.where(known, found, 0.0) / shift**2
            weight[shape, here] += known / shift**2
            near[shape, here] = np.minimum(near[shape, here], np.where(known, abs(shift), NONE))
    mean = total / np.maximum(weight, 1e-12)
    difference = np.where(weight > 0.0, mean - guess.reshape(near.shape), 0.0)
    return np.stack([difference, near], axis=-1).reshape(len(shapes), size[0] * size[1], 2)


def _same(shapes: Floats, part: int, of: int) -> Floats:
    """What twins have in common: the quotient, and every other size."""
    return np.concatenate(
        [np.delete(shapes, [part, of], axis=1), (shapes[:, of] / shapes[:, part])[:, None]], axis=1
    )


def _places(steps: Floats, shift: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Points of the second axis, and the points `shift` doublings further on."""
    here, there = np.nonzero(np.abs(steps[:, None] + shift - steps[None]) < 1e-6)
    return here, there
