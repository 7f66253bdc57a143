"""The page: gathers everything from a result or a run directory and writes one HTML file that needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ..errors import UsageError
from .capacity import MEASURES, CapacityInfo, capacity_info, draw_capacity
from .embed import plain
from .facts import Fact, FactGroup, cost_info, input_info, reporting_info
from .layers import LayerInfo, draw_layers, layer_info
from .misses import MissInfo, draw_misses, miss_info
from .palette import Look, looks
from .rendering import Figure, rendered, write_html
from .rows import Row, bound_names, plain_rows, policy_names
from .table import TableInfo, counts_info, table_info
from .timeline import TimelineInfo, draw_timeline, timeline_info, timeline_runs


class Result(Protocol):
    """What a page needs of a result. `rows` and `layers` are pandas frames."""

    @property
    def rows(self) -> Any: ...
    @property
    def layers(self) -> Any: ...
    @property
    def reporting(self) -> Mapping[str, Any]: ...
    @property
    def run(self) -> Mapping[str, Any]: ...
    @property
    def timeline(self) -> Any: ...


class PageInfo(NamedTuple):
    """Everything the page shows, as plain data."""

    title: str
    run: dict[str, Any]
    rows: list[Row]
    inputs: tuple[FactGroup, ...]
    sentence: str | None
    warnings: tuple[str, ...]
    costs: FactGroup | None
    reporting: dict[str, Any]
    reporting_facts: tuple[Fact, ...]
    table: TableInfo
    counts: TableInfo
    looks: dict[str, Look]
    bounds: tuple[str, ...]
    curves: dict[str, tuple[CapacityInfo, ...]]
    """By column: hit_rate, tpot_s, ttft_s, bytes_moved; empty where unknown."""
    misses: tuple[MissInfo, ...]
    layers: tuple[LayerInfo, ...]
    timelines: tuple[TimelineInfo, ...]

    @property
    def has_times(self) -> bool:
        return bool(self.curves["tpot_s"] or self.curves["ttft_s"])


def page_info(result: Result) -> PageInfo:
    """Gathers the page from a result. Raises `UsageError` where it has no rows."""
    rows = plain_rows(result.rows)
    if not rows:
        raise UsageError("the result has no rows, so there is nothing to report")
    run, reporting = plain(result.run or {}), plain(result.reporting or {})
    bounds = bound_names(rows)
    timelines = (timeline_info(one) for one in timeline_runs(result.timeline))
    return PageInfo(
        title=_title(run),
        run=run,
        rows=rows,
        inputs=input_info(run),
        sentence=run.get("sentence"),
        warnings=tuple(str(warning) for warning in run.get("warnings") or ()),
        costs=cost_info(run),
        reporting=reporting,
        reporting_facts=reporting_info(reporting),
        table=table_info(rows),
        counts=counts_info(rows),
        looks=looks(policy_names(rows), bounds),
        bounds=tuple(bounds),
        curves={measure.column: capacity_info(rows, measure) for measure in MEASURES},
        misses=miss_info(rows),
        layers=layer_info(plain_rows(result.layers), rows),
        timelines=tuple(one for one in timelines if one is not None),
    )


def _title(run: Mapping[str, Any]) -> str:
    trace = run.get("trace") or {}
    name = trace.get("path") or trace.get("model") or "a trace"
    return f"Replay of {Path(str(name)).name}"


def page_figures(info: PageInfo) -> dict[str, tuple[Figure, ...]]:
    """The figures of each section, in order; a section without data has none."""
    sections: dict[str, tuple[Figure, ...]] = {}
    for column, panels in info.curves.items():
        several = len(panels) > 1 or any(panel.prefetch != "none" for panel in panels)
        sections[column] = tuple(
            Figure(f"{column}-{index}", f"prefetch: {panel.prefetch}" if several else "", (),
                   (draw_capacity(panel, info.looks),))
            for index, panel in enumerate(panels)
        )  # fmt: skip
    sections["misses"] = _choice("misses", info.misses, draw_misses)
    sections["layers"] = _choice("layers", info.layers, draw_layers)
    titles = tuple(one.title for one in info.timelines)
    drawn = tuple(draw_timeline(one) for one in info.timelines)
    sections["timeline"] = (Figure("timeline-0", "", titles, drawn),) if drawn else ()
    return sections


def _choice(key: str, infos: tuple[Any, ...], draw: Any) -> tuple[Figure, ...]:
    if not infos:
        return ()
    labels = tuple(info.capacity_label for info in infos)
    return (Figure(f"{key}-0", "", labels, tuple(draw(info) for info in infos)),)


def write_page(result: Result, path: str | Path) -> Path:
    """Draw `result` and write the page whole to `path`. Raises `UsageError`, or `RunError` on a full disk."""
    return write_html(page_html(page_info(result)), path)


def page_html(info: PageInfo) -> str:
    """The page as text: Plotly embedded once, figures and data as escaped JSON, everything else autoescaped."""
    data = {"run": info.run, "rows": info.rows, "reporting": info.reporting}
    return rendered("report.html.j2", page_figures(info), data, info=info)
