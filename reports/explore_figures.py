"""Where the time of the chosen designs goes, and how it grows with the batch: gathered, then drawn."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from ..sim.designs import OperatingPoint
from ..sim.designs.costs import OF_MIXTURE, PARTS
from ..workbench.explore import ExploreResult
from ..workbench.explore_costs import Priced
from ..workbench.explore_lines import seconds_text
from ..workbench.explore_sensitivity import (
    BatchRow,
    Crossover,
    LinkRow,
    batch_curve,
    crossovers,
    link_twice,
    most_that_fit,
)
from ..workbench.units import UNKNOWN
from .embed import literal
from .explore_info import BASE, WAITS, Choice, DesignInfo
from .explore_measures import change_text
from .figure import NAME_WIDTH
from .log_axes import decades
from .palette import TEXT, Look, looks
from .scales import seconds_unit

if TYPE_CHECKING:
    import plotly.graph_objects as go

PART_COLOURS = {
    "mixers": "#183090", "router": "#c9a400", "shared": "#900048", "projections": "#e030c8", "dispatch": "#f09a50",
    "experts": "#00a060", "combine": "#e65c00", "all-reduce": "#604800", "rest": "#9a9a9a",
}  # fmt: skip
"""What goes between devices is brown and orange."""
BOUND_SYMBOLS = {"weights": "circle", "kv": "square", "compute": "diamond", "link": "triangle-up"}


class Legend(NamedTuple):
    """What the page's legend needs."""

    looks: dict[str, Look]
    bounds: tuple[str, ...] = ()


class Bar(NamedTuple):
    """One design at one operating point: seconds by part."""

    name: str
    parts: dict[str, float]


class PartsInfo(NamedTuple):
    """The bars of one operating point."""

    point: str
    bars: tuple[Bar, ...]


class Curve(NamedTuple):
    """One design over batches."""

    name: str
    rows: tuple[BatchRow, ...]
    crossings: tuple[Crossover, ...]
    mixture_crossings: tuple[Crossover, ...]
    fits_up_to: int | None
    links: tuple[LinkRow, ...]
    """One an operating point of the figure."""


class CurvesInfo(NamedTuple):
    """All designs over batches, at the operating points that differ in nothing but their batch."""

    points: tuple[tuple[str, int], ...]
    """(name, batch)."""
    phase: str
    curves: tuple[Curve, ...]

    @property
    def title(self) -> str:
        return ", ".join(f"{name} (batch {batch:,})" for name, batch in self.points)


def shown_designs(choice: Choice) -> tuple[DesignInfo, ...]:
    """The chosen designs, then the base."""
    return (*choice.designs, *((choice.base,) if choice.base is not None else ()))


def label_of(design: DesignInfo) -> str:
    return f"{design.name} ({BASE})" if design.row is None else design.name


def parts_infos(choice: Choice) -> tuple[PartsInfo, ...]:
    """One an operating point; designs without a time there are left out."""
    designs = shown_designs(choice)
    found = []
    for place, point in enumerate(designs[0].points if designs else ()):
        bars = [Bar(label_of(one), one.points[place].parts) for one in designs if one.points[place].parts]
        if bars:
            found.append(PartsInfo(point.point, tuple(bars)))
    return tuple(found)


def parts_legend(infos: Sequence[PartsInfo]) -> Legend:
    """The parts that take any time."""
    there = [part for part in PARTS if any(bar.parts[part] > 0 for info in infos for bar in info.bars)]
    return Legend({part: Look(PART_COLOURS[part], "solid", "square") for part in there})


def draw_parts(info: PartsInfo) -> go.Figure:
    """Stacked bars, the mixture's parts side by side."""
    import plotly.graph_objects as go

    from .figure import bar_layout

    unit = seconds_unit(sum(bar.parts.values()) for bar in info.bars)
    figure = go.Figure(layout=bar_layout([bar.name for bar in info.bars], extra=76))
    figure.update_yaxes(ticktext=[_label(bar.name) for bar in info.bars])
    for part in sorted(PARTS, key=lambda part: (part in OF_MIXTURE, part == "rest")):
        values = [bar.parts[part] * unit.factor for bar in info.bars]
        if not any(values):
            continue
        shares = [f"{100 * bar.parts[part] / sum(bar.parts.values()):.1f}" for bar in info.bars]
        figure.add_bar(
            orientation="h", name=part, meta={"policy": part}, x=values, y=list(range(len(info.bars))), width=0.7,
            customdata=shares, marker={"color": PART_COLOURS[part]},
            hovertemplate=f"{part}: %{{x:.3g}} {unit.name}, %{{customdata}} % of the pass<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title=unit.titled("time of a pass"), rangemode="tozero")
    figure.update_layout(barmode="stack")
    return figure


def _label(name: str) -> str:
    """A design's name, broken where its parts meet."""
    return "<br>".join(literal(line) for line in textwrap.wrap(name, NAME_WIDTH)) or literal(name)


def curves_infos(
    result: ExploreResult, machine: str, choice: Choice, priced: Priced
) -> tuple[CurvesInfo, ...]:
    """The chosen designs and the base over batches. A design whose layout does not fit is left out."""
    alike: dict[OperatingPoint, list[OperatingPoint]] = {}
    for point in result.points:
        alike.setdefault(replace(point, name="", batch=point.layout.dp), []).append(point)
    curves: dict[OperatingPoint, list[Curve]] = {key: [] for key in alike}
    for design in shown_designs(choice):
        try:
            links = {one.point: one for one in link_twice(result, machine, design.row, priced)}
        except UsageError:
            continue
        for key, points in alike.items():
            asked = (result, machine, design.row, points[0].name)
            curves[key].append(
                Curve(
                    label_of(design), tuple(batch_curve(*asked, priced=priced)), tuple(crossovers(*asked, priced=priced)),
                    tuple(crossovers(*asked, priced=priced, of=OF_MIXTURE)), most_that_fit(*asked, priced=priced),
                    tuple(links[point.name] for point in points),
                )
            )  # fmt: skip
    return tuple(
        CurvesInfo(tuple((one.name, one.batch) for one in points), points[0].phase, tuple(curves[key]))
        for key, points in alike.items()
        if any(curve.rows for curve in curves[key])
    )


def curves_legend(choice: Choice) -> Legend:
    """One look a design; the base is a black dashed line."""
    found = looks([label_of(one) for one in choice.designs], ())
    if choice.base is not None:
        found[label_of(choice.base)] = Look(TEXT, "dash", None)
    return Legend({name: look._replace(mark=None) for name, look in found.items()})


def draw_curves(info: CurvesInfo, legend: Legend) -> go.Figure:
    """Time of a pass over the batch, both logarithmic; the mark says the bound, a ring the batch at which it changes."""
    import plotly.graph_objects as go

    from .figure import base_layout

    rows = [row for curve in info.curves for row in curve.rows]
    unit = seconds_unit(row.high for row in rows)
    figure = go.Figure(layout=base_layout(440))
    for curve in info.curves:
        look = legend.looks[curve.name]
        there = {"meta": {"policy": curve.name}, "name": literal(curve.name)}
        batches = [row.batch for row in curve.rows]
        if any(row.high > row.low for row in curve.rows):
            around = [*(row.low for row in curve.rows), *(row.high for row in reversed(curve.rows))]
            figure.add_scatter(
                x=[*batches, *reversed(batches)], y=[unit.factor * edge for edge in around], fill="toself", mode="none",
                fillcolor=_faint(look.colour), hoverinfo="skip", **there,
            )  # fmt: skip
        figure.add_scatter(
            x=batches, y=[unit.factor * row.seconds for row in curve.rows], mode="lines+markers", hoverinfo="text",
            hovertext=[_row_text(curve.name, row) for row in curve.rows], line={"color": look.colour, "dash": look.dash},
            marker={"color": look.colour, "size": 8,
                    "symbol": [BOUND_SYMBOLS[row.bound] + ("" if row.fits else "-open") for row in curve.rows]}, **there,
        )  # fmt: skip
        if curve.crossings:
            figure.add_scatter(
                x=[one.batch for one in curve.crossings], y=[unit.factor * one.seconds for one in curve.crossings],
                mode="markers", hoverinfo="text", marker={"symbol": "circle-open", "size": 18, "color": look.colour,
                                                          "line": {"width": 2}},
                hovertext=[f"{literal(curve.name)}<br>{WAITS[one.after]} from batch {one.batch:,}, {WAITS[one.before]} below it"
                           for one in curve.crossings], **there,
            )  # fmt: skip
    for _, batch in info.points:
        figure.add_vline(x=batch, line={"color": "#666666", "width": 1, "dash": "dot"})
    across = decades((row.batch for row in rows), lambda value: f"{value:,.0f}")
    times = [unit.factor * edge for row in rows for edge in (row.low, row.high)]
    up = decades(times, lambda value: f"{value:,g}")
    figure.update_xaxes(across.layout("batch (sequences over all replicas)"))
    figure.update_yaxes(up.layout(unit.titled(time_title(info.phase))))
    return figure


def time_title(phase: str) -> str:
    return "latency per token" if phase == "decode" else "time of a pass"


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.10)"


def _row_text(name: str, row: BatchRow) -> str:
    text = f"<b>{literal(name)}</b><br>batch {row.batch:,}: {seconds_text(row.seconds)}"
    if row.high > row.low:
        text += f" ({seconds_text(row.low)} to {seconds_text(row.high)})"
    text += f"<br>waits for {WAITS[row.bound]}, its mixture for {WAITS[row.mixture_bound]}"
    text += f"<br>{100 * row.measured:.0f} % stands on the profile"
    if row.extrapolated:
        text += ", some beyond what was measured"
    return text + ("" if row.fits else "<br>does not fit the device's memory")


def sensitivity_rows(infos: Sequence[CurvesInfo]) -> list[dict[str, str]]:
    """One row a design and figure, as text."""
    return [
        {
            "design": curve.name, "points": ", ".join(name for name, _ in info.points),
            "waits for": _reigns(curve.rows, curve.crossings, "bound"),
            "its mixture waits for": _reigns(curve.rows, curve.mixture_crossings, "mixture_bound"),
            "fits up to batch": UNKNOWN if curve.fits_up_to is None else f"{curve.fits_up_to:,}",
            "device link twice as fast": "; ".join(_link_text(link, len(curve.links) > 1) for link in curve.links),
        }
        for info in infos
        for curve in info.curves
    ]  # fmt: skip


def _reigns(rows: Sequence[BatchRow], crossings: Sequence[Crossover], which: str) -> str:
    """`weights, keys and values from batch 96`."""
    if not rows:
        return UNKNOWN
    first: Any = getattr(rows[0], which)
    changes = (f"{WAITS[one.after]} from batch {one.batch:,}" for one in crossings)
    return "; ".join([WAITS[str(first)], *changes])


def _link_text(link: LinkRow, named: bool) -> str:
    text = UNKNOWN if link.change is None else change_text(link.change)
    text += f" ({link.note})" if link.note else ""
    return f"{link.point}: {text}" if named else text
