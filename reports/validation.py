"""The page of a validation: predicted beside measured, where the time went in both, and the two timelines. One file, offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from ..workbench.validate_result import ScenarioResult, ValidationResult
from .embed import literal
from .palette import MISS_COLOURS
from .rendering import Figure, rendered, write_html
from .timeline import TimelineInfo, draw_timeline

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_SCENARIOS = 12  # with timelines, which bounds the page; the table has all
_MOST_SEGMENTS = 1500
_SHARES = {"compute": "#187890", "stall": MISS_COLOURS["late"], "host": "#e030c8"}


class ValidationPage(NamedTuple):
    """Everything the page shows, as plain data."""

    verdict: str
    """"" where no threshold was given beforehand."""
    ok: bool
    lines: tuple[str, ...]
    rows: tuple[dict[str, str], ...]
    scenarios: tuple[ScenarioResult, ...]
    """Those with figures."""
    calibration: dict[str, str]
    environment: dict[str, str]
    left_out: int


def validation_page(result: ValidationResult) -> ValidationPage:
    """Gather the page. Raises `UsageError` for a validation without scenarios."""
    if not result.scenarios:
        raise UsageError("the validation judged no scenario, so there is nothing to report")
    verdict = ""
    if result.within is not None:
        verdict = f"TPOT within {result.within:.0%}, as was asked beforehand: {'yes' if result.ok else 'no'}"
    return ValidationPage(
        verdict, result.ok, tuple(result.lines()), tuple(result.rows()), result.scenarios[:_MOST_SCENARIOS],
        flat(result.calibration), flat(result.environment), len(result.scenarios[_MOST_SCENARIOS:]),
    )  # fmt: skip


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested facts as lines of name and text."""
    found: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name} · ")
        elif value is not None:
            found[f"{prefix}{name}"] = f"{value:.6g}" if isinstance(value, float) else str(value)
    return found


def two_timelines(scenario: ScenarioResult) -> TimelineInfo | None:
    """Simulated lanes above measured ones, on one clock that begins with the first pass shown. None: nothing was recorded."""
    sides = (("sim: ", scenario.simulated), ("run: ", scenario.measured))
    passes = sorted({int(one["pass"]) for _, side in sides for one in side})
    while len(passes) > 1 and sum(one["pass"] in passes for _, side in sides for one in side) > _MOST_SEGMENTS:
        passes = passes[:-1]
    events = [
        {**one, "lane": label + _lane(str(one["lane"]))} for label, side in sides for one in side if one["pass"] in passes
    ]
    if not events:
        return None
    lanes = tuple(dict.fromkeys(one["lane"] for one in sorted(events, key=_order)))
    whole = sum(len(side) for _, side in sides)
    return TimelineInfo(
        scenario.name, lanes, tuple(events), tuple(passes), len(passes), len(events) < whole, 0,
        max(int(one["end_ns"]) for one in events),
    )  # fmt: skip


def _lane(lane: str) -> str:
    """The runtime has one copy thread, and decides on the compute thread: lanes are named by what they do."""
    return "copy" if lane.startswith("copy") else "decide" if lane == "host" else lane


def _order(event: Mapping[str, Any]) -> tuple[bool, int]:
    side, _, lane = str(event["lane"]).partition(": ")
    known = ("compute", "decide", "copy", "storage")
    return side == "run", known.index(lane) if lane in known else len(known)


def draw_shares(scenario: ScenarioResult) -> go.Figure:
    """Where the makespan went: one bar as simulated, one as measured."""
    import plotly.graph_objects as go

    from .figure import base_layout, legend_above

    figure = go.Figure(layout=base_layout(height=190))
    sides = (scenario.shares_predicted, scenario.shares_measured)
    for name, colour in _SHARES.items():
        figure.add_bar(
            orientation="h", name=name, y=["simulated", "measured"], x=[100 * side.get(name, 0.0) for side in sides],
            marker={"color": colour}, hovertemplate=f"{name}: %{{x:.1f}} %<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", showlegend=True, legend=legend_above(), margin_t=50)
    figure.update_xaxes(title="share of the makespan (%)", range=[0, 100])
    figure.update_yaxes(autorange="reversed")
    return figure


def draw_layers(scenario: ScenarioResult) -> go.Figure:
    """Simulated ÷ measured time of each layer over the whole run: 1 is right."""
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(height=280))
    ratio = list(scenario.layer_ratio)
    figure.add_scatter(
        x=list(range(len(ratio))), y=ratio, mode="markers", marker={"size": 9, "color": "#183090"},
        hovertemplate="MoE layer %{x}: %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.add_hline(y=1.0, line={"color": "#707070", "dash": "dash", "width": 1})
    figure.update_xaxes(title="MoE layer of the trace", dtick=max(1, len(ratio) // 16))
    figure.update_yaxes(title="simulated ÷ measured")
    return figure


def page_figures(page: ValidationPage) -> dict[str, tuple[Figure, ...]]:
    """The figures of each section; a variant for each scenario, chosen from a list."""
    names = tuple(literal(one.name, 90) for one in page.scenarios)
    pairs = [(name, info) for name, info in zip(names, map(two_timelines, page.scenarios), strict=True) if info is not None]
    found: dict[str, tuple[Figure, ...]] = {
        "shares": (Figure("shares", "", names, tuple(map(draw_shares, page.scenarios))),),
        "layers": (Figure("layers", "", names, tuple(map(draw_layers, page.scenarios))),),
    }
    if pairs:
        drawn = tuple(draw_timeline(info) for _, info in pairs)
        found["timelines"] = (Figure("timelines", "", tuple(name for name, _ in pairs), drawn),)
    return found


def validation_report(result: ValidationResult, path: str | Path) -> Path:
    """Write the page of a validation; returns its path. Raises `UsageError`, or `RunError` on a full disk."""
    page = validation_page(result)
    return write_html(rendered("validation.html.j2", page_figures(page), info=page, titles=_titles(page.rows)), path)


def _titles(rows: Sequence[Mapping[str, str]]) -> list[str]:
    return list(dict.fromkeys(title for row in rows for title in row))
