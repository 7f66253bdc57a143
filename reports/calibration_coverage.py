"""How often the 90 % band holds, with what such a count can tell; and how the held-out rows were answered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .calibration_agreement import INSIDE, OUTSIDE
from .embed import literal
from .palette import TEXT
from .scales import COUNT, significant

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from ..workbench.calibration_points import OperationPoints

PROMISED = 0.9
HOW_COLOURS = {
    "measured grid": "#183090", "interpolated": "#6c8bd8", "extrapolated": "#e8a33d", "roofline": "#b03a2e",
}  # fmt: skip
_Z = 1.959963984540054  # the normal distribution's 97.5 % quantile


class Coverage(NamedTuple):
    """One operation's band: of `rows` judged rows, `inside` lie in it. Shares are fractions."""

    operation: str
    inside: int
    rows: int
    holds: bool
    """By the rule of `profile check`: 85 to 95 % of 200 rows or more, else the exact interval contains 90 %."""

    @property
    def share(self) -> float:
        return self.inside / self.rows

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95 % interval of the share (Wilson 1927), were the rows independent."""
        n, p = self.rows, self.share
        centre = (p + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z / (1 + _Z**2 / n) * math.sqrt(p * (1 - p) / n + _Z**2 / (4 * n * n))
        return max(0.0, centre - half), min(1.0, centre + half)


class Answers(NamedTuple):
    """One operation's held-out rows by how the profile knew their times; kinds that did not occur are absent."""

    operation: str
    counts: dict[str, int]


def coverage_info(operations: Sequence[OperationPoints]) -> tuple[Coverage, ...]:
    """Operations with judged rows, in their order."""
    from ..workbench.profile_check import coverage_passes

    found = []
    for points in operations:
        within = (points.low_s <= points.measured_s) & (points.measured_s <= points.high_s)
        inside, rows = int(within[points.judged].sum()), int(points.judged.sum())
        if rows:
            found.append(Coverage(points.operation, inside, rows, coverage_passes(inside, rows)))
    return tuple(found)


def answers_info(operations: Sequence[OperationPoints]) -> tuple[Answers, ...]:
    """Operations with held-out rows, in their order."""
    from ..sim.profile import HOW

    found = []
    for points in operations:
        if points.held_out.any():
            codes = points.how[points.held_out].tolist()
            counts = {name: codes.count(code) for code, name in enumerate(HOW)}
            found.append(Answers(points.operation, {name: count for name, count in counts.items() if count}))
    return tuple(found)


def draw_coverage(info: Sequence[Coverage]) -> go.Figure:
    """A dot an operation with its interval, beside the promised 90 %."""
    import plotly.graph_objects as go

    from .figure import bar_layout

    figure = go.Figure(layout=bar_layout([one.operation for one in info], extra=96))
    for holds, colour, name in ((True, INSIDE, "holds"), (False, OUTSIDE, "does not hold")):
        found = [(place, one) for place, one in enumerate(info) if one.holds == holds]
        if not found:
            continue
        figure.add_scatter(
            x=[100 * one.share for _, one in found], y=[place for place, _ in found], mode="markers", name=name,
            marker={"size": 10, "color": colour, "symbol": "circle" if holds else "diamond"},
            error_x={
                "type": "data", "symmetric": False, "thickness": 1.6, "width": 4, "color": colour,
                "array": [100 * (one.interval[1] - one.share) for _, one in found],
                "arrayminus": [100 * (one.share - one.interval[0]) for _, one in found],
            },
            hovertext=[_hover(one) for _, one in found], hoverinfo="text",
        )  # fmt: skip
    figure.add_vline(x=100 * PROMISED, line={"color": TEXT, "width": 1.2, "dash": "dash"})
    low = min((one.interval[0] for one in info), default=0.0)
    figure.update_xaxes(title="held-out rows in the 90 % band (%)", range=[min(100 * low - 5, 70), 103])
    return _with_legend(figure)


def draw_answers(info: Sequence[Answers]) -> go.Figure:
    """Stacked shares of the held-out rows."""
    import plotly.graph_objects as go

    from .figure import bar_layout

    figure = go.Figure(layout=bar_layout([one.operation for one in info], extra=96))
    for name, colour in HOW_COLOURS.items():
        found = [(place, one) for place, one in enumerate(info) if name in one.counts]
        if not found:
            continue
        figure.add_bar(
            orientation="h", name=name, width=0.7, y=[place for place, _ in found],
            x=[100 * one.counts[name] / sum(one.counts.values()) for _, one in found],
            marker={"color": colour, "line": {"color": "#ffffff", "width": 0.5}},
            hovertext=[_answer_hover(one, name) for _, one in found], hoverinfo="text",
        )  # fmt: skip
    figure.update_xaxes(title="held-out rows (%)", range=[0, 100])
    figure.update_layout(barmode="stack")
    return _with_legend(figure)


def _with_legend(figure: go.Figure) -> go.Figure:
    from .figure import legend_above

    figure.update_layout(showlegend=True, legend=legend_above(), margin_t=40)
    return figure


def _hover(one: Coverage) -> str:
    low, high = one.interval
    return (
        f"{literal(one.operation)}<br>{COUNT.show(one.inside)} of {COUNT.show(one.rows)} rows, "
        f"{significant(100 * one.share, 3)} %<br>95 % interval {100 * low:.0f} to {100 * high:.0f} %"
    )


def _answer_hover(one: Answers, name: str) -> str:
    count, total = one.counts[name], sum(one.counts.values())
    return f"{literal(one.operation)}<br>{name}: {COUNT.show(count)} of {COUNT.show(total)} rows"
