"""A measure (hit rate, TPOT, bytes moved) against capacity: a panel a prefetcher, bounds set apart."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .embed import literal
from .palette import Look
from .rows import NO_PREFETCH, Row, bound_names, capacity_key, policy_names, prefetchers
from .scales import COUNT, PERCENT, Unit, bytes_unit, seconds_unit, significant

if TYPE_CHECKING:
    import plotly.graph_objects as go


class Measure(NamedTuple):
    """A column of the rows that can be drawn against capacity."""

    column: str
    title: str
    unit: Callable[[Iterable[float]], Unit]


MEASURES = (
    Measure("hit_rate", "hit rate", lambda _: PERCENT),
    Measure("tpot_s", "time per output token", seconds_unit),
    Measure("ttft_s", "time to first token", seconds_unit),
    Measure("bytes_moved", "bytes moved", bytes_unit),
)


class Point(NamedTuple):
    capacity_experts: int
    capacity_label: str
    value: float
    """In the measure's own unit (a fraction, seconds, bytes)."""


class Line(NamedTuple):
    policy: str
    is_bound: bool
    points: tuple[Point, ...]
    """Ascending in capacity; capacities where the measure is unknown are absent."""


class CapacityInfo(NamedTuple):
    """One panel. Panels of one measure share their unit, their ticks and the top of their axis."""

    title: str
    prefetch: str
    unit: Unit
    lines: tuple[Line, ...]
    """Bounds first. Bounds that were counted without prefetch stand in every panel."""
    ticks: tuple[tuple[int, str], ...]
    """Experts and the label asked for; those too close to their neighbour on a log axis are left out."""
    top: float
    """The largest value in any panel of this measure, bounds included."""
    is_log: bool
    """Whether a linear axis from 0 would press the policies together, so that it must be logarithmic."""

    @property
    def is_single(self) -> bool:
        """One capacity only: drawn as bars, because a line of one point shows nothing."""
        return len({point.capacity_experts for line in self.lines for point in line.points}) == 1


def capacity_info(rows: Sequence[Row], measure: Measure) -> tuple[CapacityInfo, ...]:
    """A panel for each prefetcher, in order; empty where the measure is unknown in every row."""
    known = [row for row in rows if measure.column in row and "capacity_experts" in row]
    if not known:
        return ()
    values = [float(row[measure.column]) for row in known]
    unit, top = measure.unit(values), max(values)
    is_log = measure.column != "hit_rate" and min(values) > 0 and _is_wide(known, measure.column)
    with_policies = prefetchers(row for row in known if not row.get("is_bound"))
    return tuple(
        CapacityInfo(
            measure.title, prefetch, unit, _lines(known, measure.column, prefetch), _ticks(known), top, is_log
        )
        for prefetch in with_policies or prefetchers(known)
    )


def _is_wide(rows: Sequence[Row], column: str) -> bool:
    """Policies differ 30-fold, or the worst bound stands 8-fold above the middle one of them."""
    policies = sorted(float(row[column]) for row in rows if not row.get("is_bound"))
    worst = max(float(row[column]) for row in rows)
    return bool(policies) and (policies[-1] > 30 * policies[0] or worst > 8 * policies[len(policies) // 2])


def _lines(rows: Sequence[Row], column: str, prefetch: str) -> tuple[Line, ...]:
    """Bounds (counted with this prefetcher, else without any), then policies."""
    lines = []
    bounds = bound_names(rows)
    for policy in [*bounds, *policy_names(rows)]:
        own = [row for row in rows if row["policy"] == policy]
        found = [row for row in own if row["prefetch"] == prefetch]
        if not found and policy in bounds:
            found = [row for row in own if row["prefetch"] == NO_PREFETCH]
        points = {
            row["capacity_experts"]: Point(
                row["capacity_experts"], str(row["capacity_label"]), float(row[column])
            )
            for row in sorted(found, key=capacity_key)
        }
        if points:
            lines.append(Line(policy, policy in bounds, tuple(points.values())))
    return tuple(lines)


def _ticks(rows: Sequence[Row], least_gap: float = 0.09) -> tuple[tuple[int, str], ...]:
    """Capacities that a tick can mark without touching its neighbour (`least_gap` of a log axis' length)."""
    labels: dict[int, list[str]] = {}
    for row in sorted(rows, key=capacity_key):
        seen = labels.setdefault(row["capacity_experts"], [])
        if str(row["capacity_label"]) not in seen:
            seen.append(str(row["capacity_label"]))
    length = math.log(max(labels) / min(labels)) if min(labels) > 0 else 0.0
    ticks: list[tuple[int, str]] = []
    for experts, names in labels.items():
        if not ticks or length == 0 or math.log(experts / ticks[-1][0]) >= least_gap * length:
            ticks.append((experts, " = ".join(names)))
    return tuple(ticks)


def draw_capacity(info: CapacityInfo, looks: Mapping[str, Look]) -> go.Figure:
    """Lines over capacities, or bars where there is one capacity."""
    return _draw_bars(info, looks) if info.is_single else _draw_lines(info, looks)


def _draw_lines(info: CapacityInfo, looks: Mapping[str, Look]) -> go.Figure:
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(height=380, left=64))
    for line in info.lines:
        look = looks[line.policy]
        name = literal(line.policy, 60)
        figure.add_scatter(
            x=[point.capacity_experts for point in line.points],
            y=[point.value * info.unit.factor for point in line.points],
            name=name,
            mode="lines" if look.mark is None and len(line.points) > 1 else "lines+markers",
            line={"color": look.colour, "dash": look.dash, "width": 1.5 if line.is_bound else 2.2},
            marker={"symbol": look.mark or "line-ew-open", "size": 9, "color": look.colour},
            hovertext=[_hover(name, point, info.unit) for point in line.points],
            hoverinfo="text",
            meta={"policy": line.policy},
        )
    figure.update_xaxes(
        title="capacity asked for, and experts it holds",
        type="log",
        tickvals=[experts for experts, _ in info.ticks],
        ticktext=[_tick(experts, label) for experts, label in info.ticks],
    )
    figure.update_yaxes(title=info.unit.titled(info.title))
    if info.is_log:
        shown = [point.value * info.unit.factor for line in info.lines for point in line.points]
        ticks = _log_ticks(min(shown), info.top * info.unit.factor)
        figure.update_yaxes(type="log", tickvals=ticks, ticktext=[significant(tick) for tick in ticks])
    else:
        top = max(info.top * info.unit.factor, 1e-12)  # a line at 0 stands above the axis, not on it
        figure.update_yaxes(range=[-0.02 * top, 1.06 * top])
    return figure


def _draw_bars(info: CapacityInfo, looks: Mapping[str, Look]) -> go.Figure:
    import plotly.graph_objects as go

    from .figure import bar_layout

    bounds = [line for line in info.lines if line.is_bound]
    policies = [line for line in info.lines if not line.is_bound]
    policies.sort(key=lambda line: line.points[0].value, reverse=info.unit is PERCENT)
    lines = bounds + policies
    figure = go.Figure(layout=bar_layout([line.policy for line in lines]))
    names = [literal(line.policy) for line in lines]
    figure.add_bar(
        orientation="h",
        y=list(range(len(lines))),
        x=[line.points[0].value * info.unit.factor for line in lines],
        text=[info.unit.show(line.points[0].value) for line in lines],
        textposition="outside",
        cliponaxis=False,
        hovertext=[_hover(name, line.points[0], info.unit) for name, line in zip(names, lines, strict=True)],
        hoverinfo="text",
        width=0.7,
        marker={
            "color": ["#ffffff" if line.is_bound else looks[line.policy].colour for line in lines],
            "line": {"color": [looks[line.policy].colour for line in lines], "width": 1},
            "pattern": {
                "shape": ["/" if line.is_bound else "" for line in lines],
                "fgcolor": [looks[line.policy].colour for line in lines],
                "size": 6,
            },
        },
    )
    figure.update_xaxes(
        title=info.unit.titled(info.title), range=[0, max(info.top, 1e-12) * info.unit.factor * 1.2]
    )
    return figure


def _log_ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of each decade from below `low` to above `high`; only 1 where there are many decades."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 5 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps]


def _tick(experts: int, label: str) -> str:
    """`5%` above `102`; a capacity asked for in experts needs only one line."""
    return literal(label) if label == str(experts) else f"{literal(label, 14)}<br>{COUNT.show(experts)}"


def _hover(name: str, point: Point, unit: Unit) -> str:
    value = f"{unit.show(point.value)} {unit.name}".strip()
    label = literal(point.capacity_label)
    return f"{name}<br>{label}: {COUNT.show(point.capacity_experts)} experts<br>{value}"
