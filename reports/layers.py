"""Heat map of the miss rate: policies down, the model's own MoE layer ids across, for one capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from .embed import literal
from .rows import Row, capacity_choices, contender, in_order
from .scales import COUNT, significant

if TYPE_CHECKING:
    import plotly.graph_objects as go


Grid = tuple[tuple[int | None, ...], ...]


class LayerInfo(NamedTuple):
    capacity_label: str
    layer_ids: tuple[int, ...]
    """The model's own numbers of its MoE layers, ascending; layers without experts are absent."""
    names: tuple[str, ...]
    accesses: Grid
    """[name, layer]; None where nothing was recorded."""
    misses: Grid
    top: float
    """The highest miss rate in any capacity, so that all heat maps of a page share one scale."""

    def rate(self, row: int, column: int) -> float | None:
        """Misses ÷ accesses; None (unknown) where the layer had no access."""
        accesses, misses = self.accesses[row][column], self.misses[row][column]
        return misses / accesses if accesses and misses is not None else None


def layer_info(layers: Sequence[Row], rows: Sequence[Row]) -> tuple[LayerInfo, ...]:
    """A heat map for each capacity; `rows` give the order and the names of policies and prefetchers."""
    cells = {
        (str(cell["capacity_label"]), str(cell["policy"]), str(cell["prefetch"]), int(cell["layer"])): cell
        for cell in layers
    }
    layer_ids = tuple(sorted({key[3] for key in cells}))
    top = max((cell["misses"] / cell["accesses"] for cell in layers if cell.get("accesses")), default=0.0)
    present = {key[:3] for key in cells}
    infos = []
    for label in capacity_choices(rows):
        shown = [
            row
            for row in in_order(rows)
            if str(row["capacity_label"]) == label and (label, row["policy"], row["prefetch"]) in present
        ]
        if not shown:
            continue

        names = tuple(contender(row) for row in shown)
        infos.append(LayerInfo(label, layer_ids, names, *_grids(cells, shown, layer_ids), top))
    return tuple(infos)


def _grids(
    cells: Mapping[tuple[str, str, str, int], Row], shown: Sequence[Row], layer_ids: Sequence[int]
) -> tuple[Grid, Grid]:
    """Accesses and misses, [row, layer]."""
    grids = []
    for column in ("accesses", "misses"):
        keys = [(str(row["capacity_label"]), str(row["policy"]), str(row["prefetch"])) for row in shown]
        grids.append(
            tuple(tuple(cells.get((*key, layer), {}).get(column) for layer in layer_ids) for key in keys)
        )
    return grids[0], grids[1]


def draw_layers(info: LayerInfo) -> go.Figure:
    """Dark is few misses, bright is many; a blank cell had no access."""
    import plotly.graph_objects as go

    from .figure import bar_layout

    rows, columns = range(len(info.names)), range(len(info.layer_ids))
    rates = [[info.rate(row, column) for column in columns] for row in rows]
    figure = go.Figure(layout=bar_layout(info.names, extra=130))
    figure.add_heatmap(
        z=[[None if rate is None else 100 * rate for rate in line] for line in rates],
        x=[str(layer) for layer in info.layer_ids],
        y=list(range(len(info.names))),
        zmin=0,
        zmax=max(100 * info.top, 1e-9),
        colorscale="Cividis",
        xgap=1,
        ygap=1,
        colorbar={
            "orientation": "h", "y": 1, "yanchor": "bottom", "x": 0.5, "len": 1, "thickness": 10,
            "title": {"text": "miss rate (% of the layer's accesses)", "side": "top"}, "outlinewidth": 0,
        },
        hovertext=[[_hover(info, row, column) for column in columns] for row in rows],
        hoverinfo="text",
    )  # fmt: skip
    figure.update_xaxes(title="MoE layer (the model's own number)", type="category", showgrid=False)
    figure.update_layout(margin_t=72)
    return figure


def _hover(info: LayerInfo, row: int, column: int) -> str:
    place = f"{literal(info.names[row])}<br>layer {info.layer_ids[column]}"
    rate, accesses, misses = info.rate(row, column), info.accesses[row][column], info.misses[row][column]
    if rate is None or accesses is None or misses is None:
        return f"{place}<br>no access"
    return f"{place}<br>{significant(100 * rate)} %: {COUNT.show(misses)} of {COUNT.show(accesses)} accesses"
