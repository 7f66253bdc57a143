"""Misses by kind, stacked, for each policy and prefetcher at one capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from .embed import literal
from .palette import MISS_COLOURS, MISS_KINDS
from .rows import Row, capacity_choices, contender, in_order
from .scales import COUNT, significant

if TYPE_CHECKING:
    import plotly.graph_objects as go


class MissBar(NamedTuple):
    name: str
    is_bound: bool
    accesses: int
    kinds: dict[str, int]
    """Misses by kind; they add up to all misses. A kind the run does not know is absent."""


class MissInfo(NamedTuple):
    capacity_label: str
    bars: tuple[MissBar, ...]


def miss_info(rows: Sequence[Row]) -> tuple[MissInfo, ...]:
    """For each capacity, a bar for each row in the table's order; rows without accesses are left out."""
    infos = []
    for label in capacity_choices(rows):
        bars = [
            MissBar(
                contender(row),
                bool(row.get("is_bound")),
                int(row["accesses"]),
                {kind: int(row[kind]) for kind in MISS_KINDS if kind in row},
            )
            for row in in_order(rows)
            if str(row["capacity_label"]) == label and row.get("accesses")
        ]
        if any(bar.kinds for bar in bars):
            infos.append(MissInfo(label, tuple(bars)))
    return tuple(infos)


def draw_misses(info: MissInfo) -> go.Figure:
    """Bars in per cent of the accesses, so their length is the miss rate."""
    import plotly.graph_objects as go

    from .figure import bar_layout, legend_above

    names = [bar.name + (" (bound)" if bar.is_bound else "") for bar in info.bars]
    figure = go.Figure(layout=bar_layout(names, extra=110))
    for kind in MISS_KINDS:
        found = [(index, bar) for index, bar in enumerate(info.bars) if kind in bar.kinds]
        if not found:
            continue
        figure.add_bar(
            orientation="h",
            name=kind,
            y=[index for index, _ in found],
            x=[100 * bar.kinds[kind] / bar.accesses for _, bar in found],
            width=0.7,
            marker={"color": MISS_COLOURS[kind], "line": {"color": "#ffffff", "width": 0.5}},
            hovertext=[_hover(bar, kind) for _, bar in found],
            hoverinfo="text",
        )
    figure.update_xaxes(title="misses (% of accesses)", rangemode="tozero")
    figure.update_layout(barmode="stack", showlegend=True, legend=legend_above(), margin_t=44)
    return figure


def _hover(bar: MissBar, kind: str) -> str:
    count = bar.kinds[kind]
    share = f"{COUNT.show(count)} of {COUNT.show(bar.accesses)}, {significant(100 * count / bar.accesses)} %"
    return f"{literal(bar.name)}<br>{kind}: {share}"
