"""Measured rows as grids: for each group (framework, kernel, formats) shapes × grid points of log(time / physical form)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..ops import operation_entry
from .axes import Axes, coordinates
from .roof import Roof

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


@dataclass
class Grid:
    """One group. `shapes` [S, fields of `axes.shape`]; `ratio` [S, A·B], NaN where nothing was measured.

    `a` are the values of the second axis (names of distributions, or numbers; one value where there is none), `b` of the
    first. `physical` is (launch_s, s per byte, s per FLOP) where the physical form was fitted; None: roof plus launch.
    """

    axes: Axes
    group: Mapping[str, Any]
    shapes: Floats
    a: tuple[Any, ...]
    b: Floats
    ratio: Floats
    physical: tuple[float, float, float] | None = None
    first_a: int = 0
    """Where `a` begins among the group's own values, when it is cut down to some: trees know them by number."""
    index: dict[tuple[float, ...], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.index = {tuple(row): number for number, row in enumerate(self.shapes.tolist())}

    @property
    def coords(self) -> Floats:
        return self.coords_of(self.shapes)

    def coords_of(self, shapes: Floats) -> Floats:
        if not self.axes.shape:
            return np.zeros((len(shapes), 1))
        return coordinates(self.axes.operation, {n: shapes[:, i] for i, n in enumerate(self.axes.shape)})

    def cells(self, shapes: Floats) -> list[tuple[Any, dict[str, Floats]]]:
        """Every grid point of the shapes, as one (operation, sizes) per category of `a`, or one in all; row-major."""
        count = len(shapes)
        categories: tuple[Any, ...] = self.a if self.axes.a_is_category else (None,)
        result = []
        for category in categories:
            inner = 1 if self.axes.a_is_category else len(self.a)
            rows = inner * len(self.b)
            sizes = {n: np.repeat(shapes[:, i], rows) for i, n in enumerate(self.axes.shape)}
            sizes[self.axes.b] = np.tile(self.b, count * inner)
            if self.axes.a is not None and not self.axes.a_is_category:
                sizes[self.axes.a] = np.tile(np.repeat(np.asarray(self.a, np.float64), len(self.b)), count)
            result.append((make(self.axes, self.group, sizes, category), sizes))
        return result

    def base_at_cells(self, shapes: Floats, roof: Roof) -> Floats:
        """Physical form at every grid point [S, A·B]."""
        parts = [base_seconds(one, roof, self.physical) for one, _ in self.cells(shapes)]
        return self.joined(parts, len(shapes))

    def joined(self, parts: list[Floats], count: int) -> Floats:
        """Per-category columns of `cells` as [S, A·B]."""
        return np.concatenate([np.reshape(part, (count, -1)) for part in parts], axis=1)


def make(axes: Axes, group: Mapping[str, Any], sizes: Mapping[str, Floats], category: Any = None) -> Any:
    """The operation over arrays of sizes."""
    fixed = {name: group[name] for name in axes.group if name in group}
    if axes.a_is_category and axes.a is not None:
        fixed[axes.a] = category
    return operation_entry(axes.operation).operation(
        **{n: _optional(axes, n, v) for n, v in sizes.items() if n in axes.defaults}, **fixed
    )


def _optional(axes: Axes, name: str, value: Floats) -> Floats | None:
    """A size whose default is None (a value width, a latent width) and that is 0 throughout is absent."""
    return None if axes.defaults[name] is None and not np.any(value) else value


def base_seconds(operation: Any, roof: Roof, physical: tuple[float, float, float] | None) -> Floats:
    """The physical form in seconds: fitted launch + bytes + FLOPs, or the roof plus a launch."""
    if physical is None:
        return np.asarray(roof.seconds(operation) + roof.launch_s)
    launch, per_byte, per_flop = physical
    moved, flops = np.asarray(operation.bytes, np.float64), np.asarray(operation.flops, np.float64)
    return np.asarray(launch + per_byte * moved + per_flop * flops)


def fit_physical(flops: Floats, moved: Floats, seconds: Floats) -> tuple[float, float, float]:
    """Launch, s per byte, s per FLOP: least squares of the relative error, none negative (the best of all subsets)."""
    columns = np.stack([np.ones_like(seconds), moved, flops], axis=1) / seconds[:, None]
    best, least = (float(np.median(seconds)), 0.0, 0.0), np.inf
    for chosen in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        part = columns[:, chosen]
        size = np.maximum(np.abs(part).max(axis=0), 1e-300)
        answer = np.linalg.lstsq(part / size, np.ones(len(seconds)), rcond=None)[0] / size
        error = float(((part @ answer - 1.0) ** 2).sum())
        if (answer >= 0.0).all() and error < least * (1.0 - 1e-9) and (part @ answer > 0.0).all():
            full = np.zeros(3)
            full[list(chosen)] = answer
            best, least = (float(full[0]), float(full[1]), float(full[2])), error
    return best


def grids_of(operation_axes: Axes, rows: pd.DataFrame, roof: Roof | None) -> list[Grid]:
    """The groups of a table. Repeated runs of one grid point count by their median."""
    import pandas as pd

    axes = operation_axes
    table = pd.DataFrame(index=rows.index)
    for name in (*axes.shape, axes.b, *((axes.a,) if axes.a and not axes.a_is_category else ())):
        given = rows[name] if name in rows else pd.Series(axes.defaults[name], index=rows.index)
        table[name] = pd.to_numeric(given, errors="coerce").fillna(0).astype(np.float64)
    names = [n for n in ("framework", "kernel", *axes.group) if n in rows]
    keys = rows[names].astype(object) if names else None
    found = []
    groups = (
        [((), np.arange(len(rows)))] if keys is None else list(keys.groupby(names, sort=True).indices.items())
    )
    for key, where in groups:
        values = dict(zip(names, key if isinstance(key, tuple) else (key,), strict=True))
        group = {n: bool(v) if isinstance(v, bool | np.bool_) else v for n, v in values.items()}
        part = table.iloc[where]
        shapes, shape_of = np.unique(part[list(axes.shape)].to_numpy(), axis=0, return_inverse=True)
        b, b_of = np.unique(part[axes.b].to_numpy(), return_inverse=True)
        a: tuple[Any, ...] = (0.0,)
        a_of = np.zeros(len(part), np.int64)
        if axes.a is not None:
            raw = (
                rows[axes.a].iloc[where].to_numpy()
                if axes.a in rows
                else np.full(len(part), axes.defaults[axes.a])
            )
            levels, a_of = np.unique(
                raw.astype(str) if axes.a_is_category else part[axes.a], return_inverse=True
            )
            a = tuple(str(v) if axes.a_is_category else float(v) for v in levels)
        seconds = rows["seconds"].to_numpy(np.float64)[where]
        cell = (shape_of.reshape(-1) * len(a) + a_of) * len(b) + b_of
        median = pd.Series(seconds).groupby(cell).median()
        times = np.full(len(shapes) * len(a) * len(b), np.nan)
        times[median.index.to_numpy()] = median.to_numpy()
        grid = Grid(axes, group, shapes, a, b, times.reshape(len(shapes), -1))
        if roof is None:
            work = grid.cells(shapes)
            known = np.isfinite(grid.ratio)
            flops = grid.joined([np.asarray(one.flops, np.float64) for one, _ in work], len(shapes))[known]
            moved = grid.joined([np.asarray(one.bytes, np.float64) for one, _ in work], len(shapes))[known]
            grid.physical = fit_physical(flops, moved, grid.ratio[known])
        grid.ratio = np.log(grid.ratio / grid.base_at_cells(shapes, roof or UNKNOWN_ROOF))
        found.append(grid)
    return found


UNKNOWN_ROOF = Roof(1e11, {"fp32": 1e12})
"""Stands in where no sheet is given: only the scale of features that trees see; the fitted form takes its place in times."""
