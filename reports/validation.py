"""The page of a validation: verdict, predicted beside measured, both timelines on one axis, all inputs. One file, offline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import UsageError
from ..workbench.units import format_percent, format_seconds
from ..workbench.validate_result import Metric, ScenarioResult, ValidationResult
from .facts import Fact, FactGroup, facts
from .rendering import Figure, rendered, write_html
from .timeline import KINDS, MOST_EVENTS, TimelineInfo, draw_timeline

if TYPE_CHECKING:
    import plotly.graph_objects as go

_MOST_SCENARIOS = 12  # with figures, which bounds the page; the tables have all
_RESTLESS = 0.05  # from this spread of the repeats on, an error of its size means nothing
_LANES = ("compute", "host", "link")
_SHARES = {
    "compute": KINDS["routed"][1],
    "stall": KINDS["stall"][1],
    "host": KINDS["decision"][1],
}
_METRIC_NAMES = {"tpot_s": "TPOT", "ttft_s": "TTFT", "makespan_s": "makespan"}
_UNKNOWN = "–"


class TwoTimelines(NamedTuple):
    """Simulated lanes above measured ones, as one timeline; times in ns from the start of the first pass."""

    both: TimelineInfo
    simulated_lanes: int
    caption: str


class ValidationPage(NamedTuple):
    """Everything the page shows, as plain data."""

    verdict: str
    ledgers: str
    warnings: tuple[str, ...]
    lines: tuple[str, ...]
    metrics: tuple[dict[str, str], ...]
    decisions: tuple[dict[str, str], ...]
    shown: tuple[tuple[str, ScenarioResult], ...]
    """Those with figures, with their names."""
    timelines: tuple[tuple[str, TwoTimelines], ...]
    left_out: int
    inputs: tuple[FactGroup, ...]


def validation_page(result: ValidationResult) -> ValidationPage:
    """Gather the page. Raises `UsageError` for a validation without scenarios."""
    if not result.scenarios:
        raise UsageError("the validation judged no scenario, so there is nothing to report")
    one_group = len({scenario.group for scenario in result.scenarios}) == 1
    named = [(short_name(scenario, one_group), scenario) for scenario in result.scenarios]
    shown = tuple(named[:_MOST_SCENARIOS])
    both = ((name, two_timelines(scenario)) for name, scenario in shown)
    return ValidationPage(
        verdict=verdict_text(result), ledgers=ledgers_text(result), warnings=warnings_of(result),
        lines=tuple(line for line in result.lines()[1:] if not line.startswith("within ")),
        metrics=tuple(metric_row(name, metric) for name, scenario in named for metric in scenario.metrics),
        decisions=tuple(decision_row(name, scenario) for name, scenario in named), shown=shown,
        timelines=tuple((name, found) for name, found in both if found is not None),
        left_out=len(named) - len(shown), inputs=(*_calibration(result), *_inputs(result)),
    )  # fmt: skip


def short_name(scenario: ScenarioResult, one_group: bool) -> str:
    """The scenario's name, without its group where the page has only one."""
    return scenario.name.removeprefix(f"{scenario.group}: ") if one_group else scenario.name


def verdict_text(result: ValidationResult) -> str:
    """What was asked beforehand, the answer, and why."""
    if result.within is None:
        return "No threshold was given beforehand, so there is no verdict on the times."
    judged = [(metric, scenario) for scenario, metric in result.judged() if metric is not None]
    asked = f"Asked beforehand: within {result.within:.0%} in every scenario."
    if not judged:
        return f"{asked} No time was measured."
    off = sum(metric.ape > result.within for metric, _ in judged)
    worst = max((metric for metric, _ in judged), key=lambda metric: metric.ape)
    found = f"the worst {_METRIC_NAMES[worst.name]} is off by {format_percent(worst.ape)}"
    if off:
        return f"{asked} No: {off} of {len(judged)} are further off; {found}."
    if not result.ok:
        return f"{asked} The times are, and {found}; but the ledgers differ, so the answer is no."
    return f"{asked} Yes: {found}."


def ledgers_text(result: ValidationResult) -> str:
    """Whether the simulation decided what the run decided."""
    differ = [scenario.name for scenario in result.scenarios if not scenario.ledgers_equal]
    if not differ:
        return (
            f"The ledgers are equal in {_all(len(result.scenarios))}, in every repeat and layer by layer: accesses, hits with "
            "late misses, misses by kind, evictions, experts and bytes moved, prefetches."
        )
    return f"The ledgers DIFFER in {len(differ)} of {len(result.scenarios)} scenarios: {'; '.join(differ)}"


def _all(count: int) -> str:
    return "the one scenario" if count == 1 else f"all {count} scenarios"


def warnings_of(result: ValidationResult) -> tuple[str, ...]:
    """What a reader must know before believing an error."""
    found = []
    spread = result.summary().get("spread_median")
    if spread is not None and spread > _RESTLESS:
        found.append(
            f"The repeats themselves differ by {format_percent(spread)} (TPOT, median of the spreads): errors below that say "
            "nothing. Other processes on the machine are the usual cause."
        )
    if any(metric.low is None for scenario in result.scenarios for metric in scenario.metrics):
        found.append("Some metrics have no band: too few calibration runs for a finite one.")
    return tuple(found)


def metric_row(name: str, metric: Metric) -> dict[str, str]:
    """One line of the first table; every value with its unit."""
    return {
        "scenario": name,
        "metric": _METRIC_NAMES[metric.name],
        "predicted": format_seconds(metric.predicted),
        "90 % band": _UNKNOWN
        if metric.low is None
        else f"{format_seconds(metric.low)} … {format_seconds(metric.high)}",
        "measured": format_seconds(metric.measured),
        "spread": _UNKNOWN if metric.spread is None else format_percent(metric.spread),
        "error": format_percent(metric.ape),
        "in the band": {True: "yes", False: "no", None: _UNKNOWN}[metric.inside],
    }


def decision_row(name: str, scenario: ScenarioResult) -> dict[str, str]:
    """One line of the second table: what was decided, and how much of the copies' time was hidden."""
    inside = scenario.layer_values_inside
    return {
        "scenario": name,
        "ledgers": "equal" if scenario.ledgers_equal else "DIFFER",
        "late, simulated": f"{scenario.late_simulated:,}",
        "late, measured": f"{scenario.late_measured:,.4g}",
        "prefetches": f"{scenario.prefetch_issued:,}",
        "waves": f"{scenario.waves:,}",
        "copies hidden": _UNKNOWN if scenario.overlap is None else format_percent(scenario.overlap),
        "layers in band": _UNKNOWN if inside is None else f"{inside:,} of {scenario.layer_values:,}",
        "repeats": str(scenario.repeats),
    }


def two_timelines(scenario: ScenarioResult) -> TwoTimelines | None:
    """As many of the recorded passes as can be drawn, from the first on; None where nothing was recorded."""
    lines = scenario.timelines
    if lines is None:
        return None
    sides = (("simulated:", lines.simulated), ("measured:", lines.measured))
    passes = lines.passes
    while len(passes) > 1 and sum(one["pass"] in passes for _, side in sides for one in side) > MOST_EVENTS:
        passes = passes[:-1]
    kept = [(label, [one for one in side if one["pass"] in passes]) for label, side in sides]
    events = [
        {**one, "lane": f"{label} {one['lane']}"} for label, side in kept for one in side[: MOST_EVENTS // 2]
    ]
    if not events:
        return None
    used = {event["lane"] for event in events}
    lanes = tuple(
        lane for label, _ in sides for lane in (f"{label} {name}" for name in _LANES) if lane in used
    )
    is_cut = any(len(side) > MOST_EVENTS // 2 for _, side in kept)
    info = TimelineInfo(
        scenario.name, lanes, tuple(events), passes, len(lines.passes), is_cut, 0, max(event["end_ns"] for event in events)
    )  # fmt: skip
    return TwoTimelines(
        info, sum(lane.startswith("simulated:") for lane in lanes), _caption(scenario, passes, is_cut)
    )


def _caption(scenario: ScenarioResult, passes: tuple[int, ...], is_cut: bool) -> str:
    lines, makespan = scenario.timelines, scenario.metric("makespan_s")
    assert lines is not None
    numbers = f"pass {passes[0]}" if len(passes) == 1 else f"passes {passes[0]} to {passes[-1]}"
    median = "" if makespan is None else f"; the median is {format_seconds(makespan.measured)}"
    cut = ". The last segments are left out: too many to draw" if is_cut else ""
    return (
        f"{numbers}; measured: repeat {lines.repeat} of {scenario.repeats}, whose makespan was "
        f"{format_seconds(lines.repeat_makespan_s)}{median}{cut}"
    )


def draw_two_timelines(info: TwoTimelines) -> go.Figure:
    """Both on one axis, with a line between what was simulated and what was measured."""
    figure = draw_timeline(info.both)
    if info.simulated_lanes:
        figure.add_hline(y=info.simulated_lanes - 0.5, line={"color": "#1a1a1a", "width": 1})
    return figure


def draw_shares(scenario: ScenarioResult) -> go.Figure:
    """Where the makespan went: one bar as simulated, one as measured."""
    import plotly.graph_objects as go

    from .figure import base_layout, legend_above

    figure = go.Figure(layout=base_layout(height=200))
    sides = (scenario.shares_predicted, scenario.shares_measured)
    titles = {"compute": "compute", "stall": "waiting for a copy", "host": "host"}
    for name, colour in _SHARES.items():
        figure.add_bar(
            orientation="h", name=titles[name], y=["simulated", "measured"], x=[100 * side[name] for side in sides],
            marker={"color": colour}, texttemplate="%{x:.1f} %", textposition="inside", insidetextanchor="middle",
            textangle=0, textfont={"color": "#1a1a1a", "size": 12},
            hovertemplate=f"{titles[name]}: %{{x:.1f}} %<extra></extra>",
        )  # fmt: skip
    figure.update_layout(barmode="stack", showlegend=True, legend=legend_above(), margin_t=50)
    figure.update_xaxes(title="share of the makespan (%)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", ticks="", showgrid=False)
    return figure


def draw_layers(scenario: ScenarioResult) -> go.Figure:
    """How far off each layer's time is, over the whole run."""
    import plotly.graph_objects as go

    from .figure import base_layout

    figure = go.Figure(layout=base_layout(height=280))
    layers = scenario.layer_ids or range(len(scenario.layer_ratio))
    figure.add_bar(
        x=[str(layer) for layer in layers], y=[100 * (ratio - 1) for ratio in scenario.layer_ratio], width=0.6,
        marker={"color": "#183090"}, hovertemplate="layer %{x}: %{y:+.1f} %<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(title="MoE layer (the model's own number)", type="category", showgrid=False)
    figure.update_yaxes(title="simulated − measured (%)", zeroline=True, zerolinecolor="#888888")
    return figure


def _calibration(result: ValidationResult) -> list[FactGroup]:
    """What the predictions stand on: fitted costs by group, bands, machine."""
    found = [
        FactGroup(
            f"Fitted costs: {name}", facts({_COSTS.get(key, key): value for key, value in costs.items()})
        )
        for name, costs in (result.calibration.get("groups") or {}).items()
    ]
    bands = tuple(
        Fact(_METRIC_NAMES.get(name, "one layer of one pass"), f"× or ÷ {1 + width:.3f}")
        for name, width in (result.calibration.get("band_half_width") or {}).items()
    )
    if bands:
        found.append(FactGroup("Half-width of the 90 % bands", bands))
    found.append(FactGroup("Machine of the runs", facts(result.environment)))
    return found


_COSTS = {
    "copy_s": "one copy, fitted_s",
    "copy_timed_s": "one copy, as timed_s",
    "decision_s": "deciding in one layer_s",
    "expert_one_token_s": "one expert for one token_s",
    "before_median_s": "before the experts are known, median_s",
    "expert_bytes": "size of one expert_bytes",
}


def _inputs(result: ValidationResult) -> list[FactGroup]:
    return [FactGroup(f"Input: {name}", facts(given)) for name, given in result.inputs.items()]


def page_figures(page: ValidationPage) -> dict[str, tuple[Figure, ...]]:
    """The figures of each section; a variant for each scenario, chosen from a list."""
    found: dict[str, tuple[Figure, ...]] = {}
    if page.timelines:
        names = tuple(name for name, _ in page.timelines)
        drawn = tuple(draw_two_timelines(both) for _, both in page.timelines)
        found["timelines"] = (Figure("timelines", "", names, drawn),)

    def each(key: str, draw: Callable[[ScenarioResult], Any]) -> tuple[Figure, ...]:
        names = tuple(name for name, _ in page.shown)
        return (Figure(key, "", names, tuple(draw(scenario) for _, scenario in page.shown)),)

    return {**found, "shares": each("shares", draw_shares), "layers": each("layers", draw_layers)}


def validation_report(result: ValidationResult, path: str | Path) -> Path:
    """Write the page of a validation; returns its path. The timelines are there where it ran with `timeline=True`.

    Raises `UsageError`, or `RunError` on a full disk.
    """
    page = validation_page(result)
    return write_html(rendered("validation.html.j2", page_figures(page), info=page), path)
