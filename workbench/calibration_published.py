"""The points of a report from published tables: held out, fitted and judged as `profile check` does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..files import sha256_of
from .calibration_points import ROOFLINE, CalibrationPoints, OperationPoints, Source, points_of

if TYPE_CHECKING:
    from ..sim.measurement import Measurements
    from ..sim.profile import Roof
    from ..sim.profile.grids import Grid

INTERPOLATED, EXTRAPOLATED = 1, 2
"""Indices of `sim.profile.HOW`."""


def published_points(
    system: str,
    operations: Sequence[str] | None = None,
    *,
    new_models: bool = True,
    seed: int = 0,
    threads: int = 2,
    progress: Callable[[str], None] | None = None,
) -> CalibrationPoints:
    """The points of a system's published tables: held out, fitted and judged as `profile_check` does it.

    `new_models`: also every mixture predicted without any of its rows, as operation `moe_new_model`. Doubtful rows are left
    out and counted. Raises `UsageError` on an unknown system or operation, or without the extra `silicon`.
    """
    from ..kernels.silicon import published_roof, read_published
    from ..kernels.silicon.package import SYSTEMS, data_root
    from ..sim.profile import fit_profile
    from .profile_check import CHECKED, SHAPES, held_out

    wanted = tuple(operations or CHECKED)
    for name in wanted:
        if name not in SHAPES:
            raise UsageError(f"operation {name!r} has no held-out check; known: {', '.join(CHECKED)}")
    roof = published_roof(system)
    found, sources = [], []
    for name, published in read_published(system, wanted).items():
        table = published.measurements
        rows = table.rows.reset_index(drop=True)
        doubt, held = rows["doubt"].to_numpy(str), held_out(rows, SHAPES[name])
        clean = _chosen(table, doubt == "")
        aside = held[doubt == ""]
        profile = fit_profile(
            [_chosen(clean, ~aside)], system="check", roof=roof, seed=seed, threads=threads, models=False,
            progress=progress,
        )  # fmt: skip
        points = points_of(profile, clean, aside, new_model=False)
        found.append(_judged(points, doubt[held], "kernel measured for no other shape"))
        if name == "moe" and new_models:
            points = _new_models(points, clean, roof, seed, threads, progress)
            found.append(_judged(points, doubt, "unsupported: kernel ran for no other model"))
        sources += [
            Source(name, file, sha256_of(data_root() / file), table.source, table.licence)
            for file in published.files
        ]
    sheet = SYSTEMS[system].hardware
    return CalibrationPoints(
        system, True, tuple(found), roof, f"data sheet {sheet}, dense peaks",
        {"system": system, "hardware": sheet}, tuple(sources),
    )  # fmt: skip


def _new_models(
    points: OperationPoints, clean: Measurements, roof: Roof, seed: int, threads: int,
    progress: Callable[[str], None] | None,
) -> OperationPoints:  # fmt: skip
    """The same rows, every (hidden, width, top-k, experts) predicted without any of its own, as `check_new_models` does it."""
    from dataclasses import replace

    from ..sim.profile.axes import axes_of
    from ..sim.profile.grids import grids_of
    from ..sim.profile.models import fit_new_models
    from .profile_check import _cells

    (progress or (lambda _: None))("moe_new_model: models left out")
    grids = grids_of(axes_of(clean.operation), clean.rows, roof)
    new = fit_new_models(grids, roof, seed, threads)
    guess, half = np.full(len(clean), np.nan), np.full(len(clean), np.nan)
    how = np.full(len(clean), ROOFLINE, np.int8)
    for number, where, shape, cell in _cells(grids, clean.rows):
        grid = grids[number]
        guess[where] = (
            np.exp(new.guess[number][shape, cell]) * grid.base_at_cells(grid.shapes, roof)[shape, cell]
        )
        half[where] = new.half[number][shape, cell]
        kind = np.where(_beyond_others(grid), EXTRAPOLATED, INTERPOLATED)
        how[where] = np.where(new.supported[number], kind, ROOFLINE)[shape]
    return replace(
        points, operation="moe_new_model", rows_of=points.operation, predicted_s=guess, low_s=guess * np.exp(-half),
        high_s=guess * np.exp(half), how=how, held_out=np.ones(len(clean), bool), law="surface and trees",
    )  # fmt: skip


def _beyond_others(grid: Grid) -> NDArray[np.bool_]:
    """Which shapes [S] lie outside the box around all shapes of other models."""
    columns = [grid.axes.shape.index(name) for name in grid.axes.model]
    model = np.unique(grid.shapes[:, columns], axis=0, return_inverse=True)[1].reshape(-1)
    coords, beyond = grid.coords, np.ones(len(model), bool)
    for one in np.unique(model):
        others, mine = coords[model != one], model == one
        if len(others):
            outside = (coords[mine] < others.min(axis=0) - 1e-9) | (coords[mine] > others.max(axis=0) + 1e-9)
            beyond[mine] = outside.any(axis=1)
    return beyond


def _judged(points: OperationPoints, doubt: NDArray[np.str_], unknown_reason: str) -> OperationPoints:
    """Without the rows that the roofline had to answer; these, and the doubtful ones, counted by reason."""
    from dataclasses import replace

    reasons, counts = np.unique(doubt[doubt != ""], return_counts=True)
    left = dict(zip(reasons.tolist(), counts.tolist(), strict=True))
    unknown = points.held_out & (points.how == ROOFLINE)
    if unknown.any():
        left[unknown_reason] = int(unknown.sum())
    return replace(points, judged=points.held_out & ~unknown, left_out=left)


def _chosen(table: Measurements, mask: NDArray[np.bool_]) -> Measurements:
    from dataclasses import replace

    return replace(table, rows=table.rows.reset_index(drop=True)[mask].reset_index(drop=True))
