"""The page of an exploration: what to choose and why, the front, where the time goes, how firm it is. One file, offline."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import NamedTuple

from ..workbench.explore import ExploreResult
from ..workbench.explore_costs import prices_of
from ..workbench.explore_lines import lines
from .explore_figures import (
    BOUND_SYMBOLS,
    CurvesInfo,
    Legend,
    PartsInfo,
    curves_infos,
    curves_legend,
    draw_curves,
    draw_parts,
    parts_infos,
    parts_legend,
    sensitivity_rows,
)
from .explore_front import (
    MOST_POINTS,
    FrontInfo,
    LinesInfo,
    draw_front,
    draw_lines,
    front_info,
    lines_info,
)
from .explore_info import (
    WAITS,
    Choice,
    asked_info,
    choice_of,
    markdown_of,
    sentence_of,
    source_infos,
)
from .explore_measures import Measure, measures_of
from .facts import FactGroup
from .palette import MARKS
from .rendering import Figure, rendered, write_html

_POINTS_OF_PAGE = 24_000
"""Faint points of all figures together, which keeps the page small: some 70 bytes each."""


class MachineInfo(NamedTuple):
    """One machine's part of the page."""

    key: str
    """Its anchor: names are foreign text."""
    name: str
    measures: tuple[Measure, ...]
    choice: Choice
    unknown: int
    """Designs without a value of some measure."""
    front: FrontInfo | None
    lines: LinesInfo | None
    parts: tuple[PartsInfo, ...]
    parts_legend: Legend
    curves: tuple[CurvesInfo, ...]
    curves_legend: Legend
    sensitivity: list[dict[str, str]]
    markdown: str


class ExplorePage(NamedTuple):
    """Everything the page shows, as plain data."""

    title: str
    about: str
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    asked: tuple[FactGroup, ...]
    machines: tuple[MachineInfo, ...]
    sources: tuple[FactGroup, ...]
    study_hash: str
    version: str


def explore_page(result: ExploreResult) -> ExplorePage:
    """Gather the page. The chosen designs are costed again at other batches, some seconds a machine."""
    from .. import __version__

    machines = tuple(_machine(result, name, place) for place, name in enumerate(result.costs))
    return ExplorePage(
        title=f"Exploration {result.study.name}",
        about=result.study.about,
        sentences=(lines(result)[0], *(sentence_of(one.name, one.choice) for one in machines)),
        warnings=tuple(dict.fromkeys(result.warnings)),
        asked=asked_info(result),
        machines=machines,
        sources=source_infos(result),
        study_hash=result.study.content_hash(),
        version=__version__,
    )


def _machine(result: ExploreResult, name: str, place: int) -> MachineInfo:
    machine = next(one for one in result.study.machines if one.name == name)
    priced = prices_of(machine)
    measures = measures_of(result, name)
    choice, front = choice_of(result, name, measures, priced), result.fronts[name]
    parts = parts_infos(choice) if choice.designs else ()
    curves = curves_infos(result, name, choice, priced) if choice.designs else ()
    pairs = max(1, len(measures) * (len(measures) - 1) // 2)
    most = min(MOST_POINTS, _POINTS_OF_PAGE // (len(result.costs) * pairs))
    return MachineInfo(
        f"machine-{place}", name, measures, choice, 0 if front is None else front.unknown,
        front_info(result, name, measures, choice, most), lines_info(result, name, measures), parts, parts_legend(parts),
        curves, curves_legend(choice), sensitivity_rows(curves), markdown_of(choice, measures),
    )  # fmt: skip


def page_figures(page: ExplorePage) -> dict[str, tuple[Figure, ...]]:
    """Sections by machine: `machine-0-front`, `-lines`, `-parts`, `-curves`."""
    found: dict[str, tuple[Figure, ...]] = {}
    for one in page.machines:
        if one.front is not None:
            drawn = tuple(draw_front(one.front, pair) for pair in one.front.pairs)
            found[f"{one.key}-front"] = (Figure(f"{one.key}-front-figure", "", one.front.pair_names, drawn),)
        if one.lines is not None:
            found[f"{one.key}-lines"] = (Figure(f"{one.key}-lines-figure", "", (), (draw_lines(one.lines),)),)
        found[f"{one.key}-parts"] = tuple(
            Figure(f"{one.key}-parts-{place}", info.point, (), (draw_parts(info),))
            for place, info in enumerate(one.parts)
        )
        found[f"{one.key}-curves"] = tuple(
            Figure(f"{one.key}-curves-{place}", info.title, (), (draw_curves(info, one.curves_legend),))
            for place, info in enumerate(one.curves)
        )
    return found


def explore_report(result: ExploreResult, path: str | Path) -> Path:
    """Write the page of an exploration; returns its path. Raises `UsageError` for a directory, `RunError` on a full disk."""
    return write_html(page_html(explore_page(result)), path)


def page_html(page: ExplorePage) -> str:
    """The page as text: Plotly packed, figures as escaped JSON, everything else autoescaped."""
    return rendered(
        "explore.html.j2", page_figures(page), info=page, plotly_packed=_packed_plotly(), bound_symbols=BOUND_SYMBOLS,
        bound_words=WAITS, shapes={name: MARKS[symbol] for name, symbol in BOUND_SYMBOLS.items()},
    )  # fmt: skip


def _packed_plotly() -> str:
    """Plotly as gzip in base64: it alone is 4.8 MB, and a page with many designs shall stay below 5."""
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 9, mtime=0)).decode("ascii")
