"""The front of an exploration among all designs, two measures at a time; and its designs as lines over shape and measures."""

from __future__ import annotations

import math
from itertools import combinations, cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..sim.designs.columns import SHAPE
from ..workbench.explore import ExploreResult
from .embed import literal
from .explore_info import BASE, Choice, DesignInfo
from .explore_measures import Floats, Measure, column, edges
from .log_axes import decades
from .palette import TEXT
from .scales import COUNT, Unit

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST_POINTS = 4000
"""Designs off the front that one figure draws."""
MOST_LINES = 300
"""Designs of the front in the parallel coordinates: more are a block of colour."""
_MOST_PAIRS = 6
_HEIGHT = 560
"""Pixels of a scatter."""
_LOG_FROM = 8.0
"""An axis is logarithmic where its largest value is that many times its smallest."""
_SCALE = ((0.0, "#440154"), (0.35, "#31688e"), (0.7, "#1f9e89"), (1.0, "#b5a800"))
"""Viridis, its end darkened until it shows on white."""
_SHAPE_TITLES = {
    "hidden": "model width", "layers": "layers", "experts": "experts", "top_k": "experts a token", "width": "expert width",
    "latent": "latent width", "shared": "shared width",
}  # fmt: skip
_MOST_TICKS = 12


class Points(NamedTuple):
    """Some designs: their names, and each measure with its band in the measure's unit; NaN where there is no band."""

    names: tuple[str, ...]
    values: Floats
    """[P, M]."""
    low: Floats
    high: Floats


class Mark(NamedTuple):
    """A design with a mark of its own."""

    name: str
    label: str
    symbol: str
    values: tuple[float, ...]
    """[M] in the measures' units."""
    told: tuple[str, ...]
    """Its measures with their bands, and against the base."""


class FrontInfo(NamedTuple):
    """All that the scatters of one machine need."""

    measures: tuple[Measure, ...]
    """The study's; where it has only one, a second to draw it against."""
    others: Points
    front: Points
    total: int
    """Designs off the front with all measures known, drawn or not."""
    on_front: int
    marks: tuple[Mark, ...]

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        return tuple(combinations(range(len(self.measures)), 2))[:_MOST_PAIRS]

    @property
    def pair_names(self) -> tuple[str, ...]:
        return tuple(f"{self.measures[i].title} and {self.measures[j].title}" for i, j in self.pairs)


def front_info(
    result: ExploreResult, machine: str, measures: tuple[Measure, ...], choice: Choice, most: int = MOST_POINTS,
) -> FrontInfo | None:  # fmt: skip
    """None where the machine has no front. Of more than `most` designs off the front, or on it, so many are kept, evenly along
    the first measure: evenly by row would fall in step with the grid."""
    front = result.fronts[machine]
    if front is None:
        return None
    if len(measures) == 1:
        measures = (*measures, _second(measures[0]))
    values = _scaled(measures, [column(result, machine, one.name) for one in measures])
    others = np.asarray(np.isfinite(values).all(axis=1))
    others[list(front.rows)] = False
    rows = np.flatnonzero(others)
    rows = rows[np.argsort(values[rows, 0], kind="stable")]
    first = np.asarray(front.rows)
    return FrontInfo(
        measures, _points(result, machine, measures, values, _evenly(rows, most)),
        _points(result, machine, measures, values, _evenly(first, most)), len(rows), len(first),
        _marks(result, measures, values, choice),
    )  # fmt: skip


def _evenly(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """At most so many of them, the first and the last among them."""
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


def _second(first: Measure) -> Measure:
    if first.name == "total_params":
        return Measure("active_params", "parameters a token uses", Unit("10⁹", 1e-9), True)
    return Measure("total_params", "parameters in all", Unit("10⁹", 1e-9), False)


def _scaled(measures: tuple[Measure, ...], columns: list[Floats]) -> Floats:
    return np.stack([values * one.unit.factor for one, values in zip(measures, columns, strict=True)], axis=1)


def _points(
    result: ExploreResult, machine: str, measures: tuple[Measure, ...], values: Floats, rows: NDArray[np.int64],
) -> Points:  # fmt: skip
    both = [edges(result, machine, one.name) for one in measures]
    low = _scaled(measures, [low for low, _ in both])
    high = _scaled(measures, [high for _, high in both])
    return Points(tuple(result.designs["design"].iloc[rows]), values[rows], low[rows], high[rows])


def _marks(
    result: ExploreResult, measures: tuple[Measure, ...], values: Floats, choice: Choice
) -> tuple[Mark, ...]:
    found = []
    free = cycle(("square", "diamond", "triangle-up", "triangle-down", "hexagon", "pentagon"))
    for one in choice.designs:
        symbol = "star" if "knee" in one.chosen_as else f"{next(free)}-open"
        assert one.row is not None
        placed = tuple(values[one.row].tolist())
        found.append(Mark(one.name, " · ".join(one.chosen_as), symbol, placed, _told(one)))
    base = choice.base
    if base is not None and all(value.value is not None for value in base.values):
        own = {name: float(getattr(result.base, name)) for name in ("total_params", "active_params")}
        own |= {value.measure.name: float(value.value or 0.0) for value in base.values}
        placed = tuple(own[one.name] * one.unit.factor for one in measures)
        found.append(Mark(base.name, BASE, "x", placed, _told(base)))
    return tuple(found)


def _told(design: DesignInfo) -> tuple[str, ...]:
    found = []
    for one in design.values:
        against = f", {one.against} against {BASE}" if one.against and design.row is not None else ""
        found.append(f"{one.measure.title}: {one.text}" + (f" ({one.band})" if one.band else "") + against)
    return tuple(found)


def draw_front(info: FrontInfo, pair: tuple[int, int]) -> go.Figure:
    """Two measures; a third one is the colour. The front lies on top, knee, best and base have marks of their own."""
    import plotly.graph_objects as go

    from .figure import base_layout, legend_above

    across, up = pair
    third = next((place for place in range(len(info.measures)) if place not in pair), None)
    figure = go.Figure(layout=base_layout(_HEIGHT))
    for points, name, size, opacity in ((info.others, "designs", 4, 0.35), (info.front, "the front", 9, 1.0)):
        if not points.names:
            continue
        marker: dict[str, Any] = {"size": size, "opacity": opacity}
        if third is not None:  # a scale of colours has no colour for the legend: a trace without points has
            look = {"size": size, "color": "#6b6b6b", "line": {"width": size // 5, "color": TEXT}}
            figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker=look)
        if size > 4:
            marker["line"] = {"width": 1, "color": TEXT}
        if third is None:
            marker["color"] = "#e65c00" if size > 4 else "#6b6b6b"
        else:
            marker |= {"color": _short(points.values[:, third]), "coloraxis": "coloraxis"}
        figure.add_scatter(
            x=_short(points.values[:, across]), y=_short(points.values[:, up]), mode="markers", name=name, marker=marker,
            showlegend=third is None, text=[literal(one) for one in points.names], **_hover(info, points, across, up, third),
        )  # fmt: skip
    for mark in info.marks:
        lines = [f"<b>{literal(mark.name)}</b>", literal(mark.label), *map(literal, mark.told)]
        figure.add_scatter(
            x=[mark.values[across]], y=[mark.values[up]], mode="markers", name=literal(mark.label, 34), marker=_look(mark),
            hoverinfo="text", hovertext="<br>".join(lines),
        )  # fmt: skip
    _axis(figure.update_xaxes, info, across)
    _axis(figure.update_yaxes, info, up)
    if third is not None:
        title = {"text": literal(info.measures[third].axis), "side": "bottom", "font": {"size": 13}}
        known = np.concatenate([info.others.values[:, third], info.front.values[:, third]])
        figure.update_layout(
            coloraxis={"colorscale": [list(stop) for stop in _SCALE], "cmin": known.min(), "cmax": known.max(),
                       "colorbar": {"orientation": "h", "thickness": 10, "len": 0.9, "y": 54 / _HEIGHT, "yanchor": "top",
                                    "yref": "container", "x": 0.5, "ypad": 0, "title": title}},
            margin_b=126,
        )  # fmt: skip
    legend = {**legend_above(), "font": {"size": 12}, "itemsizing": "trace"}
    figure.update_layout(showlegend=True, legend=legend, margin_t=70)
    return figure


def _look(mark: Mark) -> dict[str, Any]:
    """Open marks leave the design below them to be seen."""
    line = {"width": 2.5 if mark.symbol.endswith("open") else 1, "color": TEXT}
    colour = "#d0006f" if mark.symbol == "star" else TEXT
    return {"symbol": mark.symbol, "size": 13 if mark.symbol == "x" else 17, "color": colour, "line": line}


def _short(values: Floats) -> NDArray[np.float32]:
    """Four bytes a number: a figure shows no more digits."""
    return values.astype(np.float32)


def _axis(update: Any, info: FrontInfo, place: int) -> None:
    measure = info.measures[place]
    values = np.concatenate([info.others.values[:, place], info.front.values[:, place]])
    wide = values.min() > 0 and values.max() / values.min() >= _LOG_FROM
    if wide:
        update(decades(values, lambda value: f"{value:,g}").layout(literal(measure.axis)))
    else:
        update(title=literal(measure.axis))


def _hover(info: FrontInfo, points: Points, across: int, up: int, third: int | None) -> dict[str, Any]:
    """The design's shape is its name; every measure has its band where it has one."""
    lines = ["<b>%{text}</b>"]
    extra: list[Floats] = []
    for place, variable in ((across, "x"), (up, "y"), (third, "marker.color")):
        if place is None:
            continue
        band = ""
        if np.isfinite(points.low[:, place]).all():
            band = f" (%{{customdata[{len(extra)}]:.4g}} to %{{customdata[{len(extra) + 1}]:.4g}})"
            extra += [points.low[:, place], points.high[:, place]]
        measure = info.measures[place]
        lines.append(f"{literal(measure.title)}: %{{{variable}:.4g}} {measure.unit.name}{band}")
    data = {"customdata": _short(np.stack(extra, axis=1))} if extra else {}
    return {"hovertemplate": "<br>".join(lines) + "<extra></extra>", **data}


Axis = tuple[str, Floats, tuple[tuple[float, str], ...]]
"""Title, [P] places along the axis, ticks with their texts; no ticks where the places are the numbers themselves."""


class LinesInfo(NamedTuple):
    """The front's designs over the axes on which they differ."""

    axes: tuple[Axis, ...]
    constant: tuple[str, ...]
    """Axes on which all agree, with the value."""
    colour: Measure
    colours: Floats
    names: tuple[str, ...]
    total: int


def lines_info(result: ExploreResult, machine: str, measures: tuple[Measure, ...]) -> LinesInfo | None:
    """None where the front has less than two designs. Of a large front evenly many along the first measure."""
    front = result.fronts[machine]
    if front is None or len(front.rows) < 2:
        return None
    rows = _evenly(np.asarray(front.rows), MOST_LINES)
    axes: list[Axis] = []
    constant = []
    for name in ("hidden", "layers", *SHAPE):
        values = result.designs[name].to_numpy(np.float64)[rows]
        if len(np.unique(values)) == 1:
            constant.append(f"{_SHAPE_TITLES[name]} {values[0]:,.0f}")
        else:
            axes.append(_steps(_SHAPE_TITLES[name], values))
    axes += [_plain(one.axis, column(result, machine, one.name)[rows] * one.unit.factor) for one in measures]
    first = measures[0]
    return LinesInfo(
        tuple(axes), tuple(constant), first, column(result, machine, first.name)[rows] * first.unit.factor,
        tuple(result.designs["design"].iloc[rows]), len(front.rows),
    )  # fmt: skip


def _steps(title: str, values: Floats) -> Axis:
    """A shape's values as even steps: they are chosen, and mostly doubled. Too many of them are a plain axis."""
    steps, places = np.unique(values, return_inverse=True)
    if len(steps) > _MOST_TICKS:
        return _plain(title, values)
    ticks = tuple((float(place), COUNT.show(step)) for place, step in enumerate(steps))
    return title, places.astype(np.float64), ticks


def _plain(title: str, values: Floats) -> Axis:
    """Logarithmic where the values span much: most of a front lies at its low end."""
    if values.min() <= 0 or values.max() / values.min() < _LOG_FROM:
        return title, values, ()
    axis = decades(values, lambda value: f"{value:,g}", most=9)
    within = [(at, text) for at, text in axis.ticks if values.min() <= at <= values.max()]
    return title, np.log10(values), tuple((math.log10(at), text) for at, text in within)


def draw_lines(info: LinesInfo) -> go.Figure:
    """One line a design of the front; drag along an axis to keep those that pass there."""
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(440))
    dimensions = []
    for title, values, ticks in info.axes:
        one: dict[str, Any] = {"label": literal(title, 16), "values": _short(values), "tickformat": ",~r"}
        if ticks:
            one |= {"tickvals": [place for place, _ in ticks], "ticktext": [text for _, text in ticks]}
        dimensions.append(one)
    figure.add_parcoords(
        dimensions=dimensions, labelfont={"size": 12, "color": TEXT}, tickfont={"size": 12, "color": TEXT},
        rangefont={"size": 1, "color": "rgba(0,0,0,0)"},  # the ends are written as places, which steps and logarithms are not
        line={"color": _short(info.colours), "colorscale": [list(stop) for stop in _SCALE], "showscale": False},
        unselected={"line": {"color": "#bbbbbb", "opacity": 0.25}},
    )  # fmt: skip
    figure.update_layout(margin={"l": 60, "r": 60, "t": 64, "b": 24})
    return figure
