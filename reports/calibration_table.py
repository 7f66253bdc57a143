"""What a calibration found, operation by operation, as one table; the sentence and the warnings that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .calibration_coverage import Coverage
from .scales import COUNT, UNKNOWN

if TYPE_CHECKING:
    from ..sim.profile import Roof
    from ..workbench.calibration_points import CalibrationPoints, OperationPoints

FEW_ROWS = 20
"""Below this many held-out rows the 90th percentile is one or two of them."""
MUCH_EXTRAPOLATED = 0.25
NO_ROOF = ("storage_read",)
"""Operations that the roof of memory and arithmetic does not bound."""


class OperationFigures(NamedTuple):
    """One operation's figures. Errors, spreads and shares are fractions; unknown ones are None."""

    operation: str
    rows: int
    """Measured rows, fitted and held out, without those left out."""
    held_out_rows: int
    judged_rows: int
    median_ape: float | None
    """Absolute error over the measured time, of judged rows."""
    p90_ape: float | None
    coverage_90: float | None
    spread_median: float | None
    """Run to run, (p75 − p25) / median of the rounds, over cases."""
    spread_p90: float | None
    roof_share_median: float | None
    """Floor over measured time, over all rows; above 1 where caches hold what is counted as read from memory."""
    extrapolated_share: float | None
    """Of the held-out rows."""
    roofline_share: float | None
    law: str
    left_out: dict[str, int]


class CalibrationTable(NamedTuple):
    """The figures as text under their titles; the first column is the operation."""

    titles: tuple[tuple[str, str], ...]
    """(title, unit)"""
    rows: tuple[tuple[str, ...], ...]


def operation_figures(points: OperationPoints, roof: Roof | None) -> OperationFigures:
    import numpy as np

    from ..sim.profile import HOW

    error = np.abs(points.predicted_s / points.measured_s - 1)[points.judged]
    inside = ((points.low_s <= points.measured_s) & (points.measured_s <= points.high_s))[points.judged]
    how = points.how[points.held_out]
    share = None
    if roof is not None and points.operation not in NO_ROOF and len(points.measured_s):
        peaks = np.array([roof.peak(name) for name in points.arithmetic.tolist()])
        share = np.maximum(points.flops / peaks, points.bytes / roof.bandwidth) / points.measured_s
    return OperationFigures(
        operation=points.operation,
        rows=len(points.measured_s),
        held_out_rows=int(points.held_out.sum()),
        judged_rows=len(error),
        median_ape=float(np.median(error)) if len(error) else None,
        p90_ape=float(np.quantile(error, 0.9)) if len(error) else None,
        coverage_90=float(inside.mean()) if len(error) else None,
        spread_median=float(np.median(points.spread)) if len(points.spread) else None,
        spread_p90=float(np.quantile(points.spread, 0.9)) if len(points.spread) else None,
        roof_share_median=None if share is None else float(np.median(share)),
        extrapolated_share=float((how == HOW.index("extrapolated")).mean()) if len(how) else None,
        roofline_share=float((how == HOW.index("roofline")).mean()) if len(how) else None,
        law=points.law,
        left_out=dict(points.left_out),
    )


def calibration_table(figures: Sequence[OperationFigures]) -> CalibrationTable:
    """Rows in the order given. The spread's columns are there where any operation was measured in rounds."""
    with_spread = any(one.spread_median is not None for one in figures)
    spread_titles = [("spread", "%, median"), ("spread", "%, p90")] if with_spread else []
    titles = [
        ("operation", ""), ("rows", ""), ("held out", ""), ("error", "%, median"), ("error", "%, p90"),
        ("in 90 % band", "%"), *spread_titles, ("of roof", "%, median"), ("extrapolated", "% of held out"),
        ("roofline", "% of held out"), ("law", ""),
    ]  # fmt: skip
    rows = []
    for one in figures:
        spread = [percent(one.spread_median), percent(one.spread_p90)] if with_spread else []
        rows.append(
            (
                one.operation, COUNT.show(one.rows), COUNT.show(one.held_out_rows), percent(one.median_ape),
                percent(one.p90_ape), percent(one.coverage_90), *spread, percent(one.roof_share_median),
                percent(one.extrapolated_share), percent(one.roofline_share), one.law,
            )
        )  # fmt: skip
    return CalibrationTable(tuple(titles), tuple(rows))


def percent(value: float | None) -> str:
    """One decimal without the sign, which stands in the column's head; "unknown" for None."""
    return UNKNOWN if value is None else f"{100 * value:,.1f}"


def calibration_sentence(points: CalibrationPoints, figures: Sequence[OperationFigures]) -> str:
    """The figures in one sentence; what was judged decides, and where nothing was, that is said."""
    again = {one.operation for one in points.operations if one.rows_of}
    judged = [one for one in figures if one.median_ape is not None and one.operation not in again]
    if not judged:
        return f"{points.system}: nothing is held out, so the error of these times is unknown."
    total = sum(one.judged_rows for one in judged)
    best = min(judged, key=lambda one: one.median_ape or 0.0)
    worst = max(judged, key=lambda one: one.median_ape or 0.0)
    covered = sum((one.coverage_90 or 0.0) * one.judged_rows for one in judged) / total
    span = f"{percent(best.median_ape)} % ({best.operation})"
    if worst is not best:
        span += f" to {percent(worst.median_ape)} % ({worst.operation})"
    return (
        f"{points.system}: on {COUNT.show(total)} held-out rows the median error is {span}, and the 90 % band holds for "
        f"{percent(covered)} % of them."
    )


def calibration_warnings(
    points: CalibrationPoints, figures: Sequence[OperationFigures], coverage: Sequence[Coverage]
) -> tuple[str, ...]:
    """What a reader must know before trusting a figure, and what helps."""
    found = []
    few = [f"{one.operation} ({one.judged_rows})" for one in figures if 0 < one.judged_rows < FEW_ROWS]
    if few:
        found.append(
            f"Fewer than {FEW_ROWS} held-out rows: {', '.join(few)}. Their errors and coverage are rough"
            + ("." if points.is_published else "; the suite full measures more shapes.")
        )
    above = [] if points.is_published else [one.operation for one in figures if _passes(one) is False]
    if above:
        found.append(
            "Held-out errors above the bar (median 7 % and p90 20 %, or twice the spread where that is larger): "
            f"{', '.join(above)}."
        )
    off = [f"{one.operation} {percent(one.share)} %" for one in coverage if not one.holds]
    if off:
        found.append(f"The 90 % band does not hold; of the held-out rows it has {', '.join(off)}.")
    far = [
        f"{one.operation} ({percent(one.extrapolated_share)} %)"
        for one in figures
        if (one.extrapolated_share or 0.0) > MUCH_EXTRAPOLATED
    ]
    if far:
        found.append(f"Many held-out rows lie beyond what was fitted: {', '.join(far)}.")
    if points.roof is None:
        found.append(
            "The folder does not hold the measured roof, so shares of it are unknown; calibrate again."
        )
    for one in figures:
        for reason, count in one.left_out.items():
            found.append(f"{one.operation}: {COUNT.show(count)} held-out rows are not judged: {reason}.")
    return tuple(found)


def _passes(one: OperationFigures) -> bool | None:
    """The rule that `calibrate` prints its verdict by; None where nothing was judged."""
    from ..workbench.calibration_result import OperationSummary

    return OperationSummary(
        one.operation, one.rows, one.held_out_rows, one.spread_median, one.spread_p90, one.roof_share_median,
        one.median_ape, one.p90_ape, one.coverage_90,
    ).passes  # fmt: skip
