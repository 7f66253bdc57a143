"""Held-out rows of one operation: predicted against measured time, and the error against the size of the work."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from .embed import literal
from .log_axes import decades, errors, prefixed
from .scales import named_value

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..workbench.calibration_points import OperationPoints

MOST_DRAWN = 1500
"""Points of one figure; of more rows every n-th is drawn, and the page says so."""
MOST_BANDS = 60
"""With more points than this the bands would cover them."""
INSIDE, OUTSIDE = "#183090", "#d04a00"
HOW_MARKS = {"measured grid": "square", "interpolated": "circle", "extrapolated": "diamond", "roofline": "x"}


class Judged(NamedTuple):
    """One held-out row."""

    label: str
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    how: str
    size: float
    """In `AgreementInfo.size_unit`."""

    @property
    def ratio(self) -> float:
        return self.predicted_s / self.measured_s

    @property
    def is_inside(self) -> bool:
        return self.low_s <= self.measured_s <= self.high_s


class AgreementInfo(NamedTuple):
    operation: str
    rows: tuple[Judged, ...]
    """Those that are drawn, shortest time first."""
    total: int
    """Rows that errors are taken over."""
    size_unit: str
    """FLOP; B for an operation without arithmetic."""

    @property
    def has_bands(self) -> bool:
        return len(self.rows) <= MOST_BANDS


def agreement_info(points: OperationPoints) -> AgreementInfo | None:
    """The judged rows, or an even choice of them; None where nothing was judged."""
    import numpy as np

    from ..sim.profile import HOW

    chosen = np.flatnonzero(points.judged)
    if not len(chosen):
        return None
    total = len(chosen)
    chosen = chosen[np.argsort(points.measured_s[chosen], kind="stable")]
    chosen = chosen[:: math.ceil(total / MOST_DRAWN)]
    has_flops = bool((points.flops[chosen] > 0).all())
    size = points.flops if has_flops else points.bytes
    rows = tuple(
        Judged(points.label(row), float(points.measured_s[row]), float(points.predicted_s[row]), float(points.low_s[row]),
               float(points.high_s[row]), HOW[int(points.how[row])], float(size[row]))
        for row in chosen.tolist()
    )  # fmt: skip
    return AgreementInfo(points.operation, rows, total, "FLOP" if has_flops else "B")


def draw_agreement(info: AgreementInfo) -> go.Figure:
    """Predicted against measured, both logarithmic; the diagonal is agreement, whiskers are the 90 % band."""
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(height=400))
    ends = [end for row in info.rows for end in (row.measured_s, row.predicted_s)]
    if info.has_bands:
        ends += [end for row in info.rows for end in (row.low_s, row.high_s)]
    axis = decades(ends, prefixed("s"), most=5)
    figure.add_scatter(
        x=[axis.low, axis.high], y=[axis.low, axis.high], mode="lines", name="agreement",
        line={"color": "#777777", "width": 1.2, "dash": "dash"}, hoverinfo="skip",
    )  # fmt: skip
    for name, rows, marker in _sorts(info):
        bands = {
            "type": "data", "symmetric": False, "thickness": 1, "width": 2, "color": marker["color"],
            "array": [row.high_s - row.predicted_s for row in rows],
            "arrayminus": [row.predicted_s - row.low_s for row in rows],
        }  # fmt: skip
        figure.add_scatter(
            x=[row.measured_s for row in rows], y=[row.predicted_s for row in rows], mode="markers", name=name,
            marker=marker, error_y=bands if info.has_bands else None, hovertext=[_hover(row) for row in rows],
            hoverinfo="text",
        )  # fmt: skip
    figure.update_xaxes(axis.layout("measured time"))
    figure.update_yaxes(axis.layout("predicted time"))
    return _with_legend(figure)


def draw_residuals(info: AgreementInfo) -> go.Figure:
    """Error of each row against the size of its work; too long and too short by one factor stand equally far from 0."""
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(height=400))
    sizes = decades([row.size for row in info.rows], prefixed(""), most=5)
    figure.add_scatter(
        x=[sizes.low, sizes.high], y=[1, 1], mode="lines", name="agreement",
        line={"color": "#777777", "width": 1.2, "dash": "dash"}, hoverinfo="skip",
    )  # fmt: skip
    for name, rows, marker in _sorts(info):
        figure.add_scatter(
            x=[row.size for row in rows], y=[row.ratio for row in rows], mode="markers", name=name, marker=marker,
            hovertext=[_hover(row) for row in rows], hoverinfo="text",
        )  # fmt: skip
    figure.update_xaxes(
        sizes.layout("FLOPs of one run" if info.size_unit == "FLOP" else "bytes moved by one run")
    )
    figure.update_yaxes(errors(row.ratio for row in info.rows).layout("error of the prediction"))
    return _with_legend(figure)


def _sorts(info: AgreementInfo) -> list[tuple[str, list[Judged], dict[str, object]]]:
    """Rows by how the answer is known (the mark) and whether the band holds the measured time (the colour)."""
    found = []
    for how, mark in HOW_MARKS.items():
        for inside in (True, False):
            rows = [row for row in info.rows if row.how == how and row.is_inside == inside]
            if rows:
                name = how if inside else f"{how}, outside its band"
                colour = INSIDE if inside else OUTSIDE
                size = 8 if len(info.rows) <= 200 else 5
                marker: dict[str, object] = {
                    "symbol": mark if inside else f"{mark}-open", "color": colour, "size": size,
                    "opacity": 1.0 if len(info.rows) <= 200 else 0.6, "line": {"width": 1.5, "color": colour},
                }  # fmt: skip
                if inside:
                    marker["line"] = {"width": 0}
                found.append((name, rows, marker))
    return found


def _with_legend(figure: go.Figure) -> go.Figure:
    from .figure import legend_above

    figure.update_layout(showlegend=True, legend=legend_above(), margin_t=56)
    return figure


def _hover(row: Judged) -> str:
    times = f"measured {named_value('_s', row.measured_s)}, predicted {named_value('_s', row.predicted_s)}"
    band = f"90 % band {named_value('_s', row.low_s)} to {named_value('_s', row.high_s)}"
    error = f"{100 * (row.ratio - 1):+.1f} %, {row.how}"
    return f"{literal(row.label, 48)}<br>{times}<br>{band}<br>{error}"
