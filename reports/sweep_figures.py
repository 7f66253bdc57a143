"""The figures of a sweep's page, drawn from what `sweep_info.py` gathered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..workbench.compare import choice_name
from .embed import literal
from .log_axes import decades
from .palette import MISS_COLOURS, Look, looks
from .sweep_info import LinkInfo, SettingInfo, at, choosable, pareto_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

_TITLES = {
    "hit_rate": "hit rate (%)", "tpot_s": "TPOT (ms)", "ttft_s": "TTFT (ms)",
    "bytes_per_output_token": "bytes over the link per output token (MB)",
}  # fmt: skip
_SCALES = {"hit_rate": 100.0, "tpot_s": 1e3, "ttft_s": 1e3, "bytes_per_output_token": 1e-6}
_KINDS = {"compulsory": "compulsory", "capacity": "capacity_misses", "collision": "collision", "late": "late"}


def draw_heat(setting: SettingInfo, measure: str) -> go.Figure:
    """Policy × capacity without prefetch; for times the gain over LRU of the best prefetcher, as a factor."""
    import plotly.graph_objects as go

    from .figure import bar_layout

    names = [*setting.bounds, *setting.policies] if measure == "hit_rate" else list(setting.policies)
    values = [
        [_heat_value(setting, name, capacity, measure) for capacity in setting.capacities] for name in names
    ]
    texts = [
        [
            "" if value is None else f"{value:.1f}" if measure == "hit_rate" else f"{value:.2f}×"
            for value in row
        ]
        for row in values
    ]
    figure = go.Figure(layout=bar_layout(names, extra=90))
    scale = "Blues" if measure == "hit_rate" else "RdBu"
    figure.add_heatmap(
        z=values, x=[literal(capacity) for capacity in setting.capacities], y=list(range(len(names))), text=texts,
        texttemplate="%{text}", colorscale=scale, zmid=None if measure == "hit_rate" else 1.0, hoverinfo="text",
        hovertext=[
            [f"{literal(name)} at {literal(capacity)}: {text}" for capacity, text in zip(setting.capacities, row, strict=True)]
            for name, row in zip(names, texts, strict=True)
        ],
        colorbar={"title": "%" if measure == "hit_rate" else "LRU ÷ policy", "thickness": 12},
    )  # fmt: skip
    figure.update_xaxes(title="capacity", type="category")
    return figure


def _heat_value(setting: SettingInfo, name: str, capacity: str, measure: str) -> float | None:
    if measure == "hit_rate":
        row = at(setting, capacity, name)
        return None if row is None or row["hit_rate"] is None else 100 * float(row["hit_rate"])
    lru = at(setting, capacity, "lru")
    own = [
        row[measure] for row in setting.rows
        if row["policy"] == name and row["capacity"] == capacity and choosable(row) and row[measure]
    ]  # fmt: skip
    return float(lru[measure] / min(own)) if lru is not None and lru[measure] and own else None


def draw_curves(
    setting: SettingInfo,
    measure: str,
    colours: dict[str, Look],
    bands: Mapping[tuple[str, str, str], tuple[float, float]],
) -> go.Figure:
    """A measure over capacity without prefetch, with its bands and the bounds: never and unbounded lie flat."""
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(420))
    for name in (*setting.bounds, *setting.policies):
        points = [
            (100 * setting_share(setting, capacity), _SCALES[measure] * row[measure])
            for capacity in setting.capacities
            if (row := at(setting, capacity, name)) is not None and row[measure] is not None
        ]
        if not points:
            continue
        look = colours[name]
        _add_band(figure, setting, name, measure, look, bands)
        figure.add_scatter(
            x=[x for x, _ in points], y=[y for _, y in points], name=literal(name), meta={"policy": name},
            mode="lines" if look.mark is None else "lines+markers", line={"color": look.colour, "dash": look.dash},
            marker={"symbol": look.mark or "circle", "color": look.colour, "size": 8},
            hovertemplate=f"{literal(name)}<br>%{{x:.3g}} %: %{{y:.4g}}<extra></extra>",
        )  # fmt: skip
    _log_axis(figure, "x", "resident share of all routed experts (%)")
    figure.update_yaxes(title=_TITLES[measure], rangemode="tozero")
    return figure


def _add_band(
    figure: go.Figure, setting: SettingInfo, name: str, measure: str, look: Look,
    bands: Mapping[tuple[str, str, str], tuple[float, float]],
) -> None:
    """The area between low and high of a line, where two capacities or more have them."""
    known = [
        (100 * setting_share(setting, capacity), *bands[setting.name, name, capacity])
        for capacity in setting.capacities
        if (setting.name, name, capacity) in bands
    ]
    if len(known) < 2:
        return
    scale = _SCALES[measure]
    figure.add_scatter(
        x=[x for x, _, _ in known] + [x for x, _, _ in reversed(known)],
        y=[scale * low for _, low, _ in known] + [scale * high for _, _, high in reversed(known)],
        mode="lines", line={"width": 0}, fill="toself", fillcolor=look.colour, opacity=0.18, hoverinfo="skip",
        showlegend=False, meta={"policy": name, "band": True},
    )  # fmt: skip


def _log_axis(figure: go.Figure, which: str, title: str) -> None:
    """A logarithmic axis with a few round numbers, all of one size: plotly's own writes 2 and 5 too small to read."""
    values = [value for trace in figure.data for value in (trace[which] if trace[which] is not None else ())]
    axis = decades(values, lambda value: f"{value:.4g}").layout(title)
    (figure.update_xaxes if which == "x" else figure.update_yaxes)(axis)


def setting_share(setting: SettingInfo, capacity: str) -> float:
    return next(float(row["resident_share"]) for row in setting.rows if row["capacity"] == capacity)


def draw_traffic(setting: SettingInfo, objective: str, colours: dict[str, Look]) -> go.Figure:
    """Link traffic against latency: one point a choice. To the lower left is better; prefetching moves right."""
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(420))
    for name in setting.policies:
        rows = [
            row
            for row in setting.rows
            if row["policy"] == name and row["bytes_per_output_token"] is not None and row[objective]
        ]
        figure.add_scatter(
            x=[1e-6 * row["bytes_per_output_token"] for row in rows], y=[1e3 * row[objective] for row in rows], mode="markers",
            name=literal(name), meta={"policy": name}, hoverinfo="text", hovertext=[literal(choice_name(row)) for row in rows],
            marker={"symbol": [str(colours[name].mark) + ("" if row["prefetch"] == "none" else "-open") for row in rows],
                    "color": colours[name].colour, "size": 9},
        )  # fmt: skip
    _log_axis(figure, "x", _TITLES["bytes_per_output_token"])
    _log_axis(figure, "y", _TITLES[objective])
    return figure


def draw_kinds(setting: SettingInfo, capacity: str) -> go.Figure:
    """Misses by kind of each policy and prefetcher, in per cent of the accesses; where misses are served in one way only.

    That is loading where the study has it: a bar for each way again would tell the same four times.
    """
    import plotly.graph_objects as go

    from .figure import bar_layout, legend_above

    served = "load" if any(row["miss"] == "load" for row in setting.rows) else setting.rows[0]["miss"]
    rows = [
        row for row in setting.rows
        if row["capacity"] == capacity and row["accesses"] and row["miss"] == served
    ]  # fmt: skip
    rows.sort(key=lambda row: (row["policy"], row["prefetch"]))
    figure = go.Figure(layout=bar_layout([choice_name(row).rpartition(" at ")[0] for row in rows], extra=110))
    for kind, column in _KINDS.items():
        figure.add_bar(
            orientation="h", name=kind, y=list(range(len(rows))), x=[100 * (row[column] or 0) / row["accesses"] for row in rows],
            width=0.7, marker={"color": MISS_COLOURS[kind]}, hovertemplate=f"{kind}: %{{x:.3g}} %<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title="misses (% of accesses)", rangemode="tozero")
    figure.update_layout(barmode="stack", showlegend=True, legend=legend_above(), margin_t=44)
    return figure


def draw_pareto(setting: SettingInfo, objective: str, colours: dict[str, Look]) -> go.Figure:
    """Cache bytes against latency; the line joins what no other choice beats in both."""
    import plotly.graph_objects as go

    from .figure import base_layout

    rows, front = pareto_of(setting, "capacity_bytes", objective)
    figure = go.Figure(layout=base_layout(420))
    figure.add_scatter(
        x=[row["capacity_bytes"] / 2**20 for row in rows], y=[1e3 * row[objective] for row in rows], mode="markers",
        hoverinfo="text", hovertext=[literal(choice_name(row)) for row in rows], name="choices",
        marker={"color": [colours[row["policy"]].colour for row in rows], "size": 7, "opacity": 0.5},
    )  # fmt: skip
    figure.add_scatter(
        x=[row["capacity_bytes"] / 2**20 for row in front], y=[1e3 * row[objective] for row in front], mode="lines+markers",
        hoverinfo="text", hovertext=[literal(choice_name(row)) for row in front], name="front",
        line={"color": "#1a1a1a", "shape": "hv"}, marker={"color": "#1a1a1a", "size": 10, "symbol": "diamond"},
    )  # fmt: skip
    _log_axis(figure, "x", "cache (MiB)")
    _log_axis(figure, "y", _TITLES[objective])
    return figure


def draw_links(info: LinkInfo, objective: str) -> go.Figure:
    """Latency over link bandwidth of the choices that lead, or nearly, at some speed."""
    import plotly.graph_objects as go

    from .figure import base_layout

    names = [name for name, _ in info.lines]
    colours = looks(names, ())
    figure = go.Figure(layout=base_layout(420))
    for name, points in info.lines:
        look = colours[name]
        figure.add_scatter(
            x=[link / 1e9 for link, _ in points], y=[1e3 * value for _, value in points], mode="lines+markers",
            name=literal(name),
            line={"color": look.colour}, marker={"symbol": look.mark, "color": look.colour, "size": 8},
            hovertemplate=f"{literal(name)}<br>%{{x:.3g}} GB/s: %{{y:.4g}}<extra></extra>",
        )  # fmt: skip
    _log_axis(figure, "x", "link bandwidth (GB/s)")
    _log_axis(figure, "y", _TITLES[objective])
    figure.update_layout(showlegend=True, legend={"font": {"size": 11}})
    return figure


def all_looks(settings: Sequence[SettingInfo]) -> dict[str, Look]:
    """One look a policy, the same in every figure."""
    policies = list(dict.fromkeys(name for setting in settings for name in setting.policies))
    bounds = list(dict.fromkeys(name for setting in settings for name in setting.bounds))
    found: dict[str, Any] = looks(policies, bounds)
    return found
