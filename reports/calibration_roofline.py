"""The roofline with the measurements on it: achieved FLOP/s against FLOPs per byte, under what the machine can do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .calibration_agreement import MOST_DRAWN
from .embed import literal
from .log_axes import Axis, decades, prefixed
from .palette import TEXT, Look
from .scales import named_value, significant

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..sim.profile import Roof
    from ..workbench.calibration_points import OperationPoints

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash")
_HEIGHT, _LINE = 480, 17
"""Pixels of the figure, and of a line of text in it."""
_FLOPS = prefixed("FLOP/s")


class Achieved(NamedTuple):
    """One measured row, fitted or held out."""

    label: str
    flops_per_byte: float
    flops_per_s: float
    measured_s: float
    arithmetic: str


class Cloud(NamedTuple):
    operation: str
    rows: tuple[Achieved, ...]
    total: int
    """Rows measured; of many, every n-th is drawn."""


class RooflineInfo(NamedTuple):
    clouds: tuple[Cloud, ...]
    without_flops: tuple[str, ...]
    """Operations that compute nothing and have no place here: copies."""
    bytes_per_s: float | None
    peaks: tuple[tuple[str, float], ...]
    """(arithmetic, FLOP/s) of those that ran, highest first, equal ones as one; empty where the roof is unknown."""


def roofline_info(operations: Sequence[OperationPoints], roof: Roof | None) -> RooflineInfo | None:
    """All measured rows that compute something; None where there is none. An arithmetic without a peak has the next wider's."""
    import numpy as np

    clouds, without, used = [], [], set()
    for points in operations:
        if points.rows_of:
            continue
        places = np.flatnonzero((points.flops > 0) & (points.bytes > 0))
        if not len(places):
            without.append(points.operation)
            continue
        used |= set(np.unique(points.arithmetic[places]).tolist())
        total = len(places)
        places = places[
            np.argsort(points.measured_s[places], kind="stable")
        ]  # so that every n-th is an even choice
        rows = tuple(
            Achieved(points.label(row), float(points.flops[row] / points.bytes[row]),
                     float(points.flops[row] / points.measured_s[row]), float(points.measured_s[row]),
                     str(points.arithmetic[row]))
            for row in places[:: math.ceil(total / MOST_DRAWN)].tolist()
        )  # fmt: skip
        clouds.append(Cloud(points.operation, rows, total))
    if not clouds:
        return None
    if roof is None:
        return RooflineInfo(tuple(clouds), tuple(without), None, ())
    names: dict[float, list[str]] = {}
    for arithmetic in sorted(used):
        names.setdefault(roof.peak(arithmetic), []).append(arithmetic)
    peaks = tuple((", ".join(names[rate]), rate) for rate in sorted(names, reverse=True))
    return RooflineInfo(tuple(clouds), tuple(without), roof.bandwidth, peaks)


def draw_roofline(info: RooflineInfo, looks: Mapping[str, Look]) -> go.Figure:
    """Points by operation (hidden by the legend beside the figure), roofs as lines with their rates written on them."""
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(height=_HEIGHT))
    rows = [row for cloud in info.clouds for row in cloud.rows]
    across, up = [row.flops_per_byte for row in rows], [row.flops_per_s for row in rows]
    if info.bytes_per_s is not None:
        ridges = [peak / info.bytes_per_s for _, peak in info.peaks]
        across += [*ridges, 8 * max(*across, *ridges)]  # room for the peaks' names beside the points
        up += [peak * 1.5 for _, peak in info.peaks]
    x, y = decades(across, lambda value: significant(value, 3)), decades(up, _FLOPS, most=8)
    for cloud in info.clouds:
        look = looks[cloud.operation]
        small = len(cloud.rows) > 200
        figure.add_scatter(
            x=[row.flops_per_byte for row in cloud.rows], y=[row.flops_per_s for row in cloud.rows], mode="markers",
            name=literal(cloud.operation, 60), hovertext=[_hover(cloud.operation, row) for row in cloud.rows],
            hoverinfo="text", meta={"policy": cloud.operation},
            marker={"symbol": look.mark, "color": look.colour, "size": 5 if small else 8, "opacity": 0.5 if small else 0.8},
        )  # fmt: skip
    if info.bytes_per_s is not None:
        _add_roofs(figure, info.bytes_per_s, info.peaks, x, y)
    figure.update_xaxes(x.layout("FLOPs per byte moved"))
    figure.update_yaxes(y.layout("achieved FLOP/s"))
    return figure


def _add_roofs(
    figure: go.Figure, bytes_per_s: float, peaks: Sequence[tuple[str, float]], x: Axis, y: Axis
) -> None:
    """The slope of the bandwidth up to the highest peak, and each peak from where it meets the slope."""
    ridge = peaks[0][1] / bytes_per_s
    pixels = (_HEIGHT - 70) / math.log10(y.high / y.low)  # a decade upwards
    lowest = -math.inf
    texts: list[tuple[float, str]] = []
    for (name, peak), dash in zip(reversed(peaks), _cycled(len(peaks)), strict=True):
        figure.add_scatter(
            x=[peak / bytes_per_s, x.high], y=[peak, peak], mode="lines", hoverinfo="skip",
            line={"color": "#333333", "width": 1.6, "dash": dash},
        )  # fmt: skip
        place = max(
            math.log10(peak) + 0.5 * _LINE / pixels, lowest
        )  # above its line, and above the text below
        texts.append((place, f"{literal(name)} {_FLOPS(peak)}"))
        lowest = place + _LINE / pixels
    start = max(x.low, y.low / bytes_per_s)
    figure.add_scatter(
        x=[start, ridge], y=[start * bytes_per_s, ridge * bytes_per_s], mode="lines", hoverinfo="skip",
        line={"color": "#333333", "width": 1.6},
    )  # fmt: skip
    for place, text in texts:
        figure.add_annotation(
            x=math.log10(x.high), y=place, text=text, xanchor="right", yanchor="middle", showarrow=False,
            font={"size": 12, "color": TEXT}, bgcolor="rgba(255,255,255,0.75)",
        )  # fmt: skip
    figure.add_annotation(
        x=0.02, y=0.98, xref="paper", yref="paper", xanchor="left", yanchor="top", showarrow=False,
        text=f"slope: {named_value('_bytes_per_s', bytes_per_s)}", font={"size": 12, "color": TEXT},
        bgcolor="rgba(255,255,255,0.75)",
    )  # fmt: skip


def _cycled(count: int) -> list[str]:
    return [_DASHES[index % len(_DASHES)] for index in range(count)]


def _hover(operation: str, row: Achieved) -> str:
    rate = f"{_FLOPS(row.flops_per_s)} at {significant(row.flops_per_byte, 3)} FLOP per byte"
    return (
        f"{literal(operation)} ({literal(row.arithmetic)})<br>{literal(row.label, 48)}<br>{rate}"
        f"<br>{named_value('_s', row.measured_s)}"
    )
