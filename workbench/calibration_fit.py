"""From a calibration's tables to a profile, and its errors on the shapes that were kept out of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

if TYPE_CHECKING:
    from ..sim.measurement import Measurements
    from ..sim.profile import Profile
    from .calibration_result import CalibrationResult


@dataclass(frozen=True, slots=True)
class HeldOutError:
    """Absolute errors over the rows of held-out shapes, as fractions, and how many lie in the 90 % band."""

    rows: int
    median_ape: float
    p90_ape: float
    coverage_90: float


def fit_and_check(result: CalibrationResult, *, threads: int = 1) -> tuple[Profile | None, CalibrationResult]:
    """A profile of the rows that are not held out, saved as `profile` in the run's folder; the result with its errors.

    No profile where only tables were measured. Raises `UsageError` where an operation has no row to fit.
    """
    from ..sim.profile import fit_profile, save_profile
    from .calibration_result import measured_system

    kept = {name: _rows(table, held_out=False) for name, table in result.tables.items()}
    empty = [name for name, table in kept.items() if not len(table)]
    if empty:
        raise UsageError(
            f"no row to fit for {', '.join(empty)}: all that was measured is held out; allow more time"
        )
    if not kept:
        return None, result
    system = measured_system(result.environment)
    profile = fit_profile(list(kept.values()), system=system, threads=threads, models=False)
    save_profile(profile, result.folder / "profile")
    errors = held_out_errors(profile, {name: result.tables[name] for name in kept})
    summaries = tuple(
        replace(
            one,
            median_ape=errors[one.operation].median_ape,
            p90_ape=errors[one.operation].p90_ape,
            coverage_90=errors[one.operation].coverage_90,
        )
        if one.operation in errors
        else one
        for one in result.summaries
    )
    return profile, replace(result, summaries=summaries, profile=Path(result.folder / "profile.toml"))


def held_out_errors(profile: Profile, tables: Mapping[str, Measurements]) -> dict[str, HeldOutError]:
    """Operation → errors on its held-out rows; operations of which none was reached are left out."""
    found = {}
    for name, table in tables.items():
        aside = _rows(table, held_out=True)
        if not len(aside):
            continue
        errors, inside = np.empty(len(aside)), np.empty(len(aside), bool)
        for index, operation, kernel in _asked(aside):
            told, measured = profile.query(operation, kernel=kernel), aside.seconds[index]
            errors[index] = np.abs(np.asarray(told.seconds) / measured - 1)
            inside[index] = (np.asarray(told.low) <= measured) & (measured <= np.asarray(told.high))
        found[name] = HeldOutError(
            len(aside), float(np.median(errors)), float(np.quantile(errors, 0.9)), float(inside.mean())
        )
    return found


def _asked(table: Measurements) -> Iterator[tuple[NDArray[np.int64], Any, str]]:
    """(row numbers, operation over them, kernel). A size that a kernel does not have, such as a latent width, is left out."""
    from ..sim.measurement import operations_of

    lacks = table.rows.isna().apply(lambda row: ",".join(row.index[row]), axis=1)  # such as a latent width
    for where in table.rows.groupby([table.rows["kernel"], lacks], sort=True).indices.values():
        part = table.rows.iloc[where].dropna(axis="columns", how="all").fillna({"window": 0})
        for index, operation in operations_of(table.operation, part):
            yield np.asarray(where)[index], operation, str(part["kernel"].iloc[0])


def _rows(table: Measurements, *, held_out: bool) -> Measurements:
    rows = table.rows[table.rows["held_out"].astype(bool) == held_out]
    return replace(table, rows=rows.reset_index(drop=True))
