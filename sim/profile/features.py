"""What the tree law sees of a row: sizes, work, waves of tiles over the processors, and the surface's own guess."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .grids import Grid
from .roof import Roof
from .twins import twins

Floats = NDArray[np.float64]


def features(operation: Any, sizes: Mapping[str, Floats], roof: Roof) -> Floats:
    """[R, F] of an operation over arrays. `sizes` are its numeric fields, broadcast to [R] each."""
    flops, moved = np.asarray(operation.flops, np.float64), np.asarray(operation.bytes, np.float64)
    compute, memory = flops / roof.peak(operation.arithmetic), moved / roof.bandwidth
    columns = [np.log(np.maximum(compute, 1e-12)), np.log(np.maximum(memory, 1e-12))]
    columns.append(np.log(np.maximum(compute, 1e-12) / np.maximum(memory, 1e-12)))
    columns += [np.asarray(value, np.float64) for value in sizes.values()]
    extra = _EXTRA.get(operation.name)
    if extra is not None:
        columns += extra(operation, sizes, roof)
    rows = max(np.size(column) for column in columns)
    return np.stack([np.broadcast_to(column, (rows,)) for column in columns], axis=-1)


def _waves(tiles: Floats, roof: Roof) -> list[Floats]:
    """Waves over the processors, and how full the last one is."""
    waves = tiles / roof.processors
    return [waves, waves / np.maximum(np.ceil(waves), 1.0)]


def _gemm(operation: Any, s: Mapping[str, Floats], roof: Roof) -> list[Floats]:
    m, n = s["m"], s["n"]
    columns = [m / (np.ceil(m / 128) * 128)]
    for rows, cols in ((128, 128), (64, 128), (128, 256)):  # usual tensor-core tiles
        columns += _waves(np.ceil(m / rows) * np.ceil(n / cols), roof)
    return columns


def _moe(operation: Any, s: Mapping[str, Floats], roof: Roof) -> list[Floats]:
    from ..ops.loads import expected_loads

    distinct, largest = expected_loads(
        s["tokens"], s["num_experts"], s["top_k"], s["ep"], operation.distribution
    )
    pairs = s["tokens"] * s["top_k"] / s["ep"]
    width, per_expert = s["width"] / s["tp"], pairs / np.maximum(distinct, 1e-9)
    columns = [distinct, per_expert, largest, pairs, width, s["num_experts"] / s["ep"], width % 128]
    for rows in (16, 64, 128):
        tiles = distinct * np.ceil(np.maximum(per_expert, 1.0) / rows) * np.ceil(width / 64)
        columns += _waves(tiles, roof)
    return columns


def _prefill(operation: Any, s: Mapping[str, Floats], roof: Roof) -> list[Floats]:
    ratio = s["heads"] / np.maximum(s["kv_heads"], 1.0)
    seen = np.where(s["window"] > 0, np.minimum(s["window"], s["tokens"]), s["tokens"]) / s["tokens"]
    return [ratio, seen, *_waves(s["batch"] * s["heads"] * np.ceil(s["tokens"] / 128), roof)]


def _decode(operation: Any, s: Mapping[str, Floats], roof: Roof) -> list[Floats]:
    ratio = s["heads"] / np.maximum(s["kv_heads"], 1.0)
    seen = np.where(s["window"] > 0, np.minimum(s["window"], s["context"]), s["context"])
    return [ratio, seen, *_waves(s["batch"] * s["kv_heads"] * np.ceil(ratio / 64), roof)]


_EXTRA = {"gemm": _gemm, "moe": _moe, "attention_prefill": _prefill, "attention_decode": _decode}


def cell_features(grid: Grid, number: int, shapes: Floats, guess: Floats, roof: Roof) -> Floats:
    """[S·A·B, F]: guess, group, category of the second axis, the operation's own features, what twins say."""
    blocks, inner = [], guess.shape[1]
    parts = grid.cells(shapes)
    for code, (operation, sizes) in enumerate(parts):
        seen = features(operation, sizes, roof)
        label = np.full((len(seen), 2), (number, grid.first_a + code), np.float64)
        blocks.append(np.concatenate([label, seen], axis=1).reshape(len(shapes), inner // len(parts), -1))
    cells = np.concatenate(blocks, axis=1).reshape(len(shapes) * inner, -1)
    told = twins(grid, shapes, guess)
    told = np.zeros((len(cells), 0)) if told is None else told.reshape(len(cells), -1)
    return np.concatenate([guess.reshape(-1, 1), cells, told], axis=1)
