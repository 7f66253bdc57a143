"""A profile: operation and shape → seconds with a band, and how that is known.

Each shape asked for becomes a small table over its grid (measured values where there are any, else the law's), made once
and kept; a query is a look-up between grid points, so the compiled engines can take the tables as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import UsageError, unknown_name
from ..estimate import Estimate
from ..measurement import Measurements
from ..ops.loads import exponent_of
from .axes import axes_of
from .bands import conformal
from .grids import UNKNOWN_ROOF, Grid, base_seconds, grids_of, make
from .interpolate import cells_between, scale_errors
from .law import OperationLaw, fit_law
from .roof import Roof
from .tables import Tables, restricted, tables_of

Floats = NDArray[np.float64]
_FEW_SHAPES = 64
"""Up to which the tables of all shapes in a question are made whole and kept."""
_CHUNK = 8192
"""Shapes whose tables are made in one go, which bounds the memory it takes."""


@dataclass
class Profile:
    """The laws of one system's operations. `about` goes into the header: sources, licences, environment."""

    system: str
    laws: dict[str, OperationLaw]
    roof: Roof | None = None
    about: dict[str, Any] = field(default_factory=dict)
    _tables: dict[Any, Any] = field(default_factory=dict, repr=False)

    def query(
        self,
        operation: Any,
        *,
        framework: str | None = None,
        kernel: str | None = None,
        new_model: bool | None = None,
    ) -> Estimate:
        """Seconds of an operation over arrays (or one shape). Raises `UsageError` where the profile lacks the operation.

        Without `framework` or `kernel` the group that measured the shape answers, else the one with most shapes. Formats
        that nobody measured are answered by the roofline. `new_model` None: found out from the measured shapes.
        """
        law = self.laws.get(operation.name)
        if law is None:
            raise unknown_name(f"operation for this profile of {self.system}:", operation.name, self.laws)
        axes = axes_of(operation.name)
        sizes = [np.asarray(_size(operation, name), np.float64) for name in axes.shape]
        b = np.asarray(getattr(operation, axes.b), np.float64)
        second = 0.0 if axes.a is None or axes.a_is_category else getattr(operation, axes.a)
        a = np.asarray(second, np.float64)
        rows = np.broadcast_shapes(b.shape, a.shape, *(s.shape for s in sizes))
        flat_b = np.ascontiguousarray(np.broadcast_to(b, rows).reshape(-1))
        flat_a = np.ascontiguousarray(np.broadcast_to(a, rows).reshape(-1))
        shapes, which = _distinct(sizes, rows)
        numbers = self._groups(law, operation, framework, kernel)
        if not numbers:
            return self._roofline(law, operation, rows)
        group_of = np.array([self._group_for(law, numbers, tuple(s)) for s in shapes.tolist()])
        out, half, kind = np.empty(len(flat_b)), np.empty(len(flat_b)), np.empty(len(flat_b), np.int8)
        several = len(np.unique(group_of)) > 1
        for number in np.unique(group_of):
            inside = np.flatnonzero(group_of[which] == number) if several else np.arange(len(flat_b))
            here = _taken(operation, axes, inside, rows) if several else operation
            chosen = np.flatnonzero(group_of == number)
            position = np.zeros(len(shapes), np.int64)
            position[chosen] = np.arange(len(chosen))
            place = flat_a[inside]
            if axes.a_is_category:
                place = np.full(len(inside), float(_category(law.groups[number].grid.a, operation.distribution)))
            tables, grid, place = self._tables_for(law, int(number), shapes[chosen], place, flat_b[inside], new_model)
            base = base_seconds(here, self.roof or UNKNOWN_ROOF, grid.physical)
            base = np.broadcast_to(base, (len(inside),) if several else rows).reshape(-1)
            part = (np.empty(len(inside)), np.empty(len(inside)), np.empty(len(inside), np.int8))
            cells_between(
                position[which[inside]], place, flat_b[inside], tables.ratio, tables.log_seconds, tables.half,
                tables.kind, np.log2(np.maximum(_numbers(grid.a), 1e-9)), np.log2(np.maximum(grid.b, 1e-9)),
                axes.a_is_category, law.interpolation, np.log(base), part[0], part[1], part[2],
            )  # fmt: skip
            out[inside], half[inside], kind[inside] = part
        seconds = np.exp(out)
        return Estimate(seconds.reshape(rows), (seconds * np.exp(-half)).reshape(rows),
                        (seconds * np.exp(half)).reshape(rows), kind.reshape(rows))  # fmt: skip

    def _groups(
        self, law: OperationLaw, operation: Any, framework: str | None, kernel: str | None
    ) -> list[int]:
        wanted = {"framework": framework, "kernel": kernel}
        found = []
        for number, group in enumerate(law.groups):
            names = group.grid.group
            same = all(
                getattr(operation, n) == v for n, v in names.items() if n not in ("framework", "kernel")
            )
            if same and all(v is None or names.get(n) == v for n, v in wanted.items()):
                found.append(number)
        return sorted(found, key=lambda n: -len(law.groups[n].grid.shapes))

    def _group_for(self, law: OperationLaw, numbers: list[int], shape: tuple[float, ...]) -> int:
        return next((n for n in numbers if shape in law.groups[n].grid.index), numbers[0])

    def _tables_for(
        self, law: OperationLaw, number: int, shapes: Floats, a: Floats, b: Floats, new_model: bool | None
    ) -> tuple[Tables, Grid, Floats]:
        """(tables, the grid that they lie over, where `a` falls on it): few shapes whole and kept, many only where asked."""
        grid = law.groups[number].grid
        if len(shapes) <= _FEW_SHAPES:
            keys = [(law.operation, number, tuple(shape), new_model) for shape in shapes.tolist()]
            lacking = [i for i, key in enumerate(keys) if key not in self._tables]
            for i in lacking:
                self._tables[keys[i]] = tables_of(law, number, shapes[i : i + 1], self.roof, new_model)
            return Tables.joined([self._tables[key] for key in keys]), grid, a
        columns = _around(np.log2(np.maximum(grid.b, 1e-9)), np.log2(np.maximum(b, 1e-9)))
        if grid.axes.a_is_category:
            rows = slice(int(a[0]), int(a[0]) + 1)
            a = a - a[0]
        else:
            rows = slice(None)  # twins of an attention lie at other batches
        small = restricted(law, number, rows, columns)
        parts = [
            tables_of(small, number, shapes[first : first + _CHUNK], self.roof, new_model)
            for first in range(0, len(shapes), _CHUNK)
        ]
        return Tables.joined(parts), small.groups[number].grid, a

    def _roofline(self, law: OperationLaw, operation: Any, rows: tuple[int, ...]) -> Estimate:
        """No measured group of these formats: the roof itself, and above it what other formats usually take."""
        physical = law.groups[0].grid.physical
        seconds = np.broadcast_to(base_seconds(operation, self.roof or UNKNOWN_ROOF, physical), rows).astype(
            np.float64
        )
        ratios = np.concatenate([g.grid.ratio[np.isfinite(g.grid.ratio)] for g in law.groups])
        high = seconds * np.exp(max(float(np.quantile(ratios, 0.95)), 0.0))
        return Estimate(seconds, seconds.copy(), high, np.full(rows, 3, np.int8))


def _category(known: tuple[Any, ...], name: str) -> int:
    """The measured distribution that answers for `name`: itself, the nearest exponent, or even loads for uniform ones.

    Uniform routing is nearest to even loads, an exponent of 0.
    """
    if name in known:
        return known.index(name)
    exponent = exponent_of(name) or 0.0
    return int(np.argmin([abs((exponent_of(one) or 0.0) - exponent) for one in known]))


def _around(axis: Floats, asked: Floats) -> slice:
    """The grid points that answers at `asked` use: from the one below the least to the one above the greatest.

    One more on each side, so that what lies beyond the axis still does.
    """
    low = int(np.searchsorted(axis, asked.min() + 1e-9)) - 2
    high = int(np.searchsorted(axis, asked.max() - 1e-9)) + 2
    return slice(max(low, 0), min(max(high, 1), len(axis)))


def _numbers(a: tuple[Any, ...]) -> Floats:
    """Values of the second axis; categories by their place."""
    return np.arange(len(a), dtype=np.float64) if isinstance(a[0], str) else np.asarray(a, np.float64)


def _size(operation: Any, name: str) -> Any:
    value = getattr(operation, name)
    return 0 if value is None else value


def _distinct(sizes: Sequence[Floats], rows: tuple[int, ...]) -> tuple[Floats, NDArray[np.int64]]:
    """(distinct shapes [S, n], which of them each row is [R]). Quick where all sizes are single numbers."""
    count = int(np.prod(rows)) if rows else 1
    if all(size.ndim == 0 for size in sizes):
        return np.array([[float(size) for size in sizes]]), np.zeros(count, np.int64)
    code = np.zeros(count, np.int64)
    columns = [np.broadcast_to(size, rows).reshape(-1) for size in sizes]
    for column in columns:
        if (column == column[0]).all():
            continue
        values, place = np.unique(column, return_inverse=True)
        code = np.unique(code * len(values) + place, return_inverse=True)[1]
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return np.stack([column[first] for column in columns], axis=1), which.astype(np.int64)


def _taken(operation: Any, axes: Any, inside: NDArray[np.int64], rows: tuple[int, ...]) -> Any:
    """The operation's rows `inside`."""
    names = (*axes.shape, axes.b, *((axes.a,) if axes.a and not axes.a_is_category else ()))
    sizes = {
        n: np.broadcast_to(np.asarray(_size(operation, n), np.float64), rows).reshape(-1)[inside]
        for n in names
    }
    group = {name: getattr(operation, name) for name in axes.group}
    return make(axes, group, sizes, getattr(operation, axes.a) if axes.a_is_category else None)


def fit_profile(
    tables: Sequence[Measurements], *, system: str, roof: Roof | None = None, seed: int = 0, threads: int = 2,
    models: bool = True, rounds: int | None = None, progress: Callable[[str], None] | None = None,
) -> Profile:  # fmt: skip
    """Fit the law of every operation measured. Rows with a `doubt` must have been taken out before.

    `roof`: the machine's sheet; None: the physical form is fitted to the rows themselves. `models`: also a law for models
    never measured. `rounds`: boosting rounds for shapes of known models, None: as usual. Raises `UsageError` where two
    tables are of one operation, or one is empty.
    """
    laws: dict[str, OperationLaw] = {}
    for table in tables:
        if table.operation in laws:
            raise UsageError(f"two tables of operation {table.operation}: join them first")
        if not len(table):
            raise UsageError(f"the measurements of {table.operation} are empty")
        grids = grids_of(axes_of(table.operation), table.rows, roof)
        law = fit_law(
            table.operation,
            grids,
            roof,
            seed=seed,
            threads=threads,
            progress=progress,
            models=models,
            rounds=rounds,
        )
        _choose_interpolation(law, roof)
        laws[table.operation] = law
    about: Mapping[str, Any] = {
        t.operation: {"source": t.source, "licence": t.licence, "rows": len(t)} for t in tables
    }
    environment = dict(tables[0].environment) if tables else {}
    return Profile(system, laws, roof, {"measured": dict(about), "environment": environment})


def _choose_interpolation(law: OperationLaw, roof: Roof | None) -> None:
    from .interpolate import SCALES

    errors, chosen = [], []
    for group in law.groups:
        grid = group.grid
        size = (len(grid.shapes), len(grid.a), len(grid.b))
        base = np.log(grid.base_at_cells(grid.shapes, roof or UNKNOWN_ROOF)).reshape(size)
        medians, error = scale_errors(grid.ratio.reshape(size), base, grid.b)
        if np.isfinite(medians).all():
            errors.append(medians)
            chosen.append(error)
    if errors:
        mean = np.mean(errors, axis=0)
        law.interpolation = int(np.argmin(mean))
        law.interpolation_errors = dict(zip(SCALES, mean.tolist(), strict=True))
        law.interpolation_band = min(conformal(np.concatenate(chosen)), 1.0)
