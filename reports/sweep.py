"""The page of a sweep: what to choose and why, the figures, the regime beside every gap, all inputs. One file, offline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from ..workbench.sweep import SweepResult, load_sweep
from .facts import Fact, facts
from .palette import Look
from .rendering import Figure, rendered, write_html
from .sweep_bands import Bands, band_note, bands_of
from .sweep_figures import (
    all_looks,
    draw_curves,
    draw_heat,
    draw_kinds,
    draw_links,
    draw_pareto,
    draw_traffic,
)
from .sweep_info import ChoiceInfo, LinkInfo, SettingInfo, choice_infos, gap_rows, link_infos, settings_of
from .sweep_layers import LayerView, draw_layer_view, layer_views

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_VARIANTS = (
    24  # settings (or their capacities) that one figure offers, which bounds the page; the rest is told of
)


class InputInfo(NamedTuple):
    name: str
    sha256: str
    facts: tuple[Fact, ...]
    """Empty for what could not be read, and in sweeps of versions that kept none."""


class SweepPage(NamedTuple):
    """Everything the page shows, as plain data."""

    title: str
    about: str
    sentence: str
    objective: str
    settings: tuple[SettingInfo, ...]
    choices: tuple[ChoiceInfo, ...]
    links: tuple[LinkInfo, ...]
    gaps: list[dict[str, str]]
    looks: dict[str, Look]
    bounds: tuple[str, ...]
    inputs: tuple[InputInfo, ...]
    errors: dict[str, int]
    failed: int
    version: str
    layers: tuple[LayerView, ...]
    bands: dict[str, Bands]
    """Of the hit rate, and of the objective where that is a time."""
    left_out: int
    """Settings without figures of their own."""


def sweep_page(result: SweepResult) -> SweepPage:
    """Gather the page. Raises `UsageError` where no scenario ran."""
    settings = settings_of(result)
    if not settings:
        raise UsageError("no scenario of the sweep ran, so there is nothing to report")
    objective = _objective(settings)
    shown = settings[:_MOST_VARIANTS]
    choices = choice_infos(result, settings, objective)
    return SweepPage(
        title=f"Sweep {result.run['name']}",
        about=result.run["about"],
        sentence=result.sentence(),
        objective=objective,
        settings=shown,
        choices=choices,
        links=link_infos(settings, objective),
        gaps=gap_rows(settings),
        looks=all_looks(settings),
        bounds=tuple(dict.fromkeys(name for setting in settings for name in setting.bounds)),
        inputs=tuple(
            InputInfo(name, digest, facts(result.run.get("described", {}).get(name, {})))
            for name, digest in result.run["inputs"].items()
        ),
        errors=dict(result.run["counts"]["errors"]),
        failed=result.run["counts"]["failed"],
        version=result.run["version"],
        layers=layer_views(result, shown, choices),
        bands={
            name: bands_of(result, shown, name)
            for name in dict.fromkeys(("hit_rate", objective))
            if name != "misses"
        },
        left_out=len(settings) - len(shown),
    )


def _objective(settings: tuple[SettingInfo, ...]) -> str:
    """TPOT where it is known, else TTFT, else misses."""
    rows = [row for setting in settings for row in setting.rows]
    return next(
        (name for name in ("tpot_s", "ttft_s") if any(row[name] is not None for row in rows)), "misses"
    )


def page_figures(page: SweepPage) -> dict[str, tuple[Figure, ...]]:
    """The figures of each section; a figure has a variant for each setting, chosen from a list."""

    def each(key: str, draw: Callable[[SettingInfo], go.Figure]) -> tuple[Figure, ...]:
        names = tuple(setting.name for setting in page.settings)
        return (Figure(key, "", names, tuple(draw(setting) for setting in page.settings)),)

    timed = page.objective != "misses"
    objective, colours = page.objective, page.looks
    found = {
        "heat": each("heat", lambda one: draw_heat(one, "hit_rate")),
        "curves": each("curves", lambda one: draw_curves(one, "hit_rate", colours, page.bands["hit_rate"].of)),
        "kinds": each("kinds", lambda one: draw_kinds(one, one.capacities[0])),
    }
    if timed:
        found["gain"] = each("gain", lambda one: draw_heat(one, objective))
        found["latency"] = each(
            "latency", lambda one: draw_curves(one, objective, colours, page.bands[objective].of)
        )
        found["traffic"] = each("traffic", lambda one: draw_traffic(one, objective, colours))
        found["pareto"] = each("pareto", lambda one: draw_pareto(one, objective, colours))
    if page.layers:
        views = tuple(draw_layer_view(one) for one in page.layers)
        found["layers"] = (Figure("layers", "", tuple(one.name for one in page.layers), views),)
    links = page.links[:_MOST_VARIANTS]
    if timed and links:
        drawn = tuple(draw_links(one, objective) for one in links)
        found["links"] = (Figure("links", "", tuple(one.name for one in links), drawn),)
    return found


def sweep_report(result_or_dir: SweepResult | str | Path, path: str | Path) -> Path:
    """Write the page of a sweep, or of the one in a folder; returns its path. Raises `UsageError`, or `RunError`."""
    result = result_or_dir if isinstance(result_or_dir, SweepResult) else load_sweep(result_or_dir)
    return write_html(page_html(sweep_page(result)), path)


def page_html(page: SweepPage) -> str:
    """The page as text: Plotly embedded once, figures as escaped JSON, everything else autoescaped."""
    return rendered(
        "sweep.html.j2",
        page_figures(page),
        info=page,
        value_text=value_text,
        gap_titles=_titles(page.gaps),
        band_notes={name: band_note(bands) for name, bands in page.bands.items()},
    )


def _titles(gaps: list[dict[str, str]]) -> list[str]:
    return list(dict.fromkeys(title for line in gaps for title in line))


def value_text(page: Mapping[str, Any] | SweepPage, value: float | None) -> str:
    """A value of the objective with its unit."""
    from ..workbench.units import format_count, format_seconds

    objective = page.objective if isinstance(page, SweepPage) else page["objective"]
    return format_count(value) if objective == "misses" else format_seconds(value)
