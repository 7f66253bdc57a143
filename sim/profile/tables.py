"""The table of one shape over its grid: measured values where there are any, else the law's, each with its band.

Made shape by shape and kept (a simulation asks for a few shapes again and again), or for many shapes at once and only
where the question falls between grid points (design-space exploration asks for a hundred thousand shapes once).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .grids import UNKNOWN_ROOF, Grid
from .law import GroupLaw, OperationLaw
from .roof import Roof
from .surface import Surface

Floats = NDArray[np.float64]
MEASURED_BAND = 0.02
"""Least half width for a run measured exactly. Assumed: the tables hold no repeats to measure it by."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Of S shapes: log(time / physical form), log seconds, half width of the band (log), kind. All [S, A, B]."""

    ratio: Floats
    log_seconds: Floats
    half: Floats
    kind: NDArray[np.int64]

    @classmethod
    def joined(cls, parts: list[Tables]) -> Tables:
        columns = ("ratio", "log_seconds", "half", "kind")
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in columns))


def tables_of(
    law: OperationLaw, number: int, shapes: Floats, roof: Roof | None, new_model: bool | None = None
) -> Tables:
    """Tables of `shapes` [S, …] in one group. `new_model` None: found out from the measured shapes."""
    group, known_roof = law.groups[number], roof or UNKNOWN_ROOF
    grid = group.grid
    size = (len(grid.a), len(grid.b))
    values, cells = np.full((len(shapes), size[0] * size[1]), np.nan), size[0] * size[1]
    rows = np.array([grid.index.get(tuple(shape), -1) for shape in shapes.tolist()])
    values[rows >= 0] = grid.ratio[rows[rows >= 0]]
    half = np.full(values.shape, max(MEASURED_BAND, law.interpolation_band))
    kind = np.zeros(values.shape, np.int64)
    lacking = ~np.isfinite(values).all(axis=1)
    novel = _new_models(grid, shapes) if new_model is None else np.full(len(shapes), new_model)
    novel &= group.model_surface is not None
    for is_novel in (False, True):
        chosen = np.flatnonzero(lacking & (novel == is_novel))
        if not len(chosen):
            continue
        guess = law.log_ratio(number, shapes[chosen], known_roof, new_model=is_novel)
        width = law.model_band * group.model_scale if is_novel else group.band * group.scale
        width = np.broadcast_to(width, (len(chosen), cells)) * _widening(grid, shapes[chosen])[:, None]
        missing = ~np.isfinite(values[chosen])
        values[chosen] = np.where(missing, guess, values[chosen])
        half[chosen] = np.where(missing, width, half[chosen])
        beyond = _beyond(grid, shapes[chosen]) > 1e-9
        kind[chosen] = np.where(missing, np.where(beyond, 2, 1)[:, None], 0)
    base = np.log(grid.base_at_cells(shapes, known_roof))
    whole = (len(shapes), *size)
    return Tables(
        values.reshape(whole), (values + base).reshape(whole), half.reshape(whole), kind.reshape(whole)
    )


def restricted(law: OperationLaw, number: int, a: slice, b: slice) -> OperationLaw:
    """The law with group `number` cut down to some of its grid points: the same answers there, at less cost."""
    group = law.groups[number]
    grid = group.grid
    size = (len(grid.a), len(grid.b))

    def cut(columns: Floats) -> Floats:
        """[…, A·B] → […, fewer]."""
        lead = columns.shape[:-1]
        return np.ascontiguousarray(columns.reshape(*lead, *size)[..., a, b]).reshape(*lead, -1)

    def surface(whole: Surface) -> Surface:
        return replace(whole, mean=cut(whole.mean), weights=cut(whole.weights), left_out=np.zeros((0, 0)))

    small = replace(grid, a=grid.a[a], b=grid.b[b], ratio=cut(grid.ratio), first_a=a.start or 0)
    known = group.model_surface
    cut_group = GroupLaw(
        small, surface(group.surface), cut(group.scale), group.band, None if known is None else surface(known),
        cut(group.model_scale) if len(group.model_scale) else group.model_scale, group.model_share,
    )  # fmt: skip
    return replace(law, groups=[cut_group if i == number else g for i, g in enumerate(law.groups)])


def _new_models(grid: Grid, shapes: Floats) -> NDArray[np.bool_]:
    """[S]: whether nothing of the shape's model was measured. False where the operation knows no models."""
    columns = [grid.axes.shape.index(name) for name in grid.axes.model]
    if not columns:
        return np.zeros(len(shapes), np.bool_)
    seen = {tuple(row) for row in grid.shapes[:, columns].tolist()}
    return np.array([tuple(row) not in seen for row in shapes[:, columns].tolist()])


def _beyond(grid: Grid, shapes: Floats) -> Floats:
    """[S]: doublings by which the shape lies outside what was measured, on the axis where that is most."""
    coords, seen = grid.coords_of(shapes), grid.coords
    return np.asarray(np.maximum(seen.min(axis=0) - coords, coords - seen.max(axis=0)).max(axis=1))


def _widening(grid: Grid, shapes: Floats) -> Floats:
    """[S]: twice the band, and once more per doubling, beyond what was measured; else 1."""
    beyond = _beyond(grid, shapes)
    return np.where(beyond > 1e-9, 2.0 + beyond, 1.0)
