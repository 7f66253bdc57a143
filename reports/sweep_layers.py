"""Where misses and stall fall: the best choice of a setting, LRU beside it and the bound, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ..workbench.compare import choice_name
from ..workbench.sweep import SweepResult
from .embed import literal
from .sweep_info import ChoiceInfo, Row, SettingInfo, at, choosable

if TYPE_CHECKING:
    import plotly.graph_objects as go

_KINDS = {"compulsory": "compulsory", "capacity": "capacity_misses", "collision": "collision", "late": "late"}


class LayerView(NamedTuple):
    """One combination of a setting and a capacity. Grids are [line, layer]; None is unknown."""

    name: str
    layer_ids: tuple[int, ...]
    lines: tuple[str, ...]
    percent: tuple[tuple[float | None, ...], ...]
    """Hits and misses in % of the layer's accesses; stall in % of the run's whole stall."""


def layer_views(
    result: SweepResult, settings: Sequence[SettingInfo], choices: Sequence[ChoiceInfo]
) -> tuple[LayerView, ...]:
    """A view for each setting at the capacity in the middle: repeats show their first."""
    wanted = []
    for setting in settings:
        if not setting.capacities:
            continue
        capacity = setting.capacities[len(setting.capacities) // 2]
        best = next((one for one in choices if (one.setting, one.capacity) == (setting.name, capacity)), None)
        rows = [
            row
            for row in setting.rows
            if best is not None and choosable(row) and choice_name(row) == best.choice
        ][:1]
        rows += [
            row
            for row in (at(setting, capacity, name) for name in ("lru", "belady-mandatory"))
            if row is not None and row not in rows
        ]
        wanted.append((f"{setting.name}, capacity {capacity}", rows))
    kept = result.layers_of([row["scenarios"][0] for _, rows in wanted for row in rows])
    views = []
    for name, rows in wanted:
        firsts = [(row, row["scenarios"][0]) for row in rows]
        views.append(_view(name, [(row, kept[first]) for row, first in firsts if first in kept]))
    return tuple(view for view in views if view is not None)


def _view(name: str, found: Sequence[tuple[Row, dict[str, Any]]]) -> LayerView | None:
    if not found:
        return None
    lines: list[str] = []
    grid: list[tuple[float | None, ...]] = []
    for row, layers in found:
        choice = choice_name(row).replace(f" at {row['capacity']}", "")
        counts = {"hits": layers["hits"], **{kind: layers[column] for kind, column in _KINDS.items()}}
        known = {kind: values for kind, values in counts.items() if values is not None}
        accesses = [sum(column) for column in zip(*known.values(), strict=True)]
        for kind, values in known.items():
            lines.append(f"{choice}: {kind}")
            grid.append(
                tuple(
                    100 * int(one) / int(of) if of else None for one, of in zip(values, accesses, strict=True)
                )
            )
        stall = layers["stall_ns"]
        if stall is not None and sum(stall):
            lines.append(f"{choice}: stall")
            grid.append(tuple(100 * int(one) / int(sum(stall)) for one in stall))
    return LayerView(name, tuple(int(one) for one in found[0][1]["layer_ids"]), tuple(lines), tuple(grid))


def draw_layer_view(view: LayerView) -> go.Figure:
    """Lines down, layers across."""
    import plotly.graph_objects as go

    from .figure import bar_layout

    figure = go.Figure(layout=bar_layout(view.lines, extra=100))
    texts = [["" if one is None else f"{one:.0f}" for one in line] for line in view.percent]
    figure.add_heatmap(
        z=[list(line) for line in view.percent], x=[str(one) for one in view.layer_ids], y=list(range(len(view.lines))),
        text=texts, texttemplate="%{text}" if len(view.layer_ids) <= 16 else "", zmin=0, zmax=100, colorscale="Blues",
        xgap=1, ygap=1, colorbar={"title": "%", "thickness": 12}, hoverinfo="text",
        hovertext=[
            [f"{literal(name)}, layer {layer}: " + ("unknown" if one is None else f"{one:.3g} %")
             for layer, one in zip(view.layer_ids, line, strict=True)]
            for name, line in zip(view.lines, view.percent, strict=True)
        ],
    )  # fmt: skip
    figure.update_xaxes(title="MoE layer", type="category", showgrid=False)
    return figure
