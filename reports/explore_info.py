"""What the page of an exploration says in words and numbers: what was asked, the chosen designs with reasons, the sources."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import UsageError
from ..sim.designs.columns import design_name
from ..sim.designs.constraints import CONSTRAINTS
from ..sim.designs.costs import PARTS
from ..sim.estimate import HOW
from ..sim.hardware import readable
from ..workbench.explore import ExploreResult
from ..workbench.explore_answer import COLUMNS, Front, config_fields
from ..workbench.explore_costs import Priced
from ..workbench.explore_lines import seconds_text
from ..workbench.explore_sensitivity import base_values
from ..workbench.explore_study import Axes, Machine, NamedModel, Point
from ..workbench.units import UNKNOWN, format_binary_bytes, format_parameters, format_percent
from .explore_measures import Measure, Value, band_text
from .facts import Fact, FactGroup
from .scales import significant

BASE = "the base"
WAITS = {
    "weights": "weights", "kv": "keys and values", "compute": "arithmetic", "link": "traffic between devices",
}  # fmt: skip
"""Names of `sim.designs.costs.BOUNDS` → what is waited for."""


class PointInfo(NamedTuple):
    """One design at one operating point. None: it does not fit the device, or a shape was refused."""

    point: str
    seconds: float | None
    band: str
    bound: str
    mixture_bound: str
    measured: float | None
    """Share of the time that stands on the profile."""
    extrapolated: bool
    memory_bytes: float
    parts: dict[str, float]
    """Seconds by part, names of `sim.designs.costs.PARTS`; empty where the time is unknown."""

    @property
    def text(self) -> str:
        """`4.73 ms (4.02 ms to 5.63 ms)`."""
        if self.seconds is None:
            return UNKNOWN
        return seconds_text(self.seconds) + (f" ({self.band})" if self.band else "")

    @property
    def reason(self) -> str:
        """What it waits for, and on what the number stands."""
        if self.seconds is None:
            return f"no time: needs {format_binary_bytes(self.memory_bytes)} a device, or lies beyond what may be extrapolated"
        waits = f"waits for {WAITS[self.bound]}"
        if self.mixture_bound != self.bound:
            waits += f" (its mixture for {WAITS[self.mixture_bound]})"
        return f"{waits}; {self.stands}"

    @property
    def stands(self) -> str:
        if not self.measured:
            return "nothing of it measured: a floor of the hardware sheet"
        text = f"{format_percent(self.measured, 0)} of the time on the profile"
        return text + (", some beyond the shapes measured" if self.extrapolated else "")


class DesignInfo(NamedTuple):
    """A design to look at: the base (row None) or a chosen one."""

    row: int | None
    name: str
    derived: str
    """The transformation that made it."""
    chosen_as: tuple[str, ...]
    values: tuple[Value, ...]
    points: tuple[PointInfo, ...]
    config: str
    """JSON of the fields of a config.json in which it differs from the base."""


class Choice(NamedTuple):
    """The designs to choose from on one machine, and the base beside them."""

    designs: tuple[DesignInfo, ...]
    base: DesignInfo | None
    base_missing: str
    """Why there is no base to compare with; empty where there is."""


def choice_of(result: ExploreResult, machine: str, measures: tuple[Measure, ...], priced: Priced) -> Choice:
    """Knee and best designs of a machine; none where it has no front."""
    front = result.fronts[machine]
    base, missing = None, ""
    of_base: Mapping[str, Any] = {}
    try:
        of_base = base_values(result, machine, priced)
        base = _design(result, None, result.base.name, "unchanged", (), measures, of_base, {})
    except UsageError as error:
        missing = str(error)
    if front is None:
        return Choice((), base, missing)
    designs = []
    for row in front.chosen:
        one = result.designs.iloc[row]
        values = {
            str(name): cell for part in (one, result.costs[machine].iloc[row]) for name, cell in part.items()
        }
        derived = str(one["transform"]) + (f", α = {one['alpha']:g}" if one["alpha"] > 1 else "")
        why = _chosen_as(front, row, measures)
        designs.append(_design(result, row, str(one["design"]), derived, why, measures, values, of_base))
    return Choice(tuple(designs), base, missing)


def _chosen_as(front: Front, row: int, measures: tuple[Measure, ...]) -> tuple[str, ...]:
    knee = ("knee",) if row == front.knee else ()
    return (*knee, *(one.best for one in measures if front.best[one.name] == row))


def _design(
    result: ExploreResult, row: int | None, name: str, derived: str, chosen_as: tuple[str, ...],
    measures: tuple[Measure, ...], values: Mapping[str, Any], of_base: Mapping[str, Any],
) -> DesignInfo:  # fmt: skip
    fields = {} if row is None else config_fields(result.base, result.spec(row))
    return DesignInfo(
        row, name, derived, chosen_as, tuple(_value(one, values, of_base) for one in measures),
        tuple(_point(point.name, values) for point in result.study.points), json.dumps(fields, indent=2),
    )  # fmt: skip


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = float(values.get(name, math.nan))
    return value if math.isfinite(value) else None


def _value(measure: Measure, values: Mapping[str, Any], of_base: Mapping[str, Any]) -> Value:
    column = COLUMNS.get(measure.name, measure.name)
    kind, _, point = measure.name.partition(":")
    value, before = _number(values, column), _number(of_base, column)
    low, high = _band(values, point) if kind == "latency" else (None, None)
    change = value / before - 1.0 if value is not None and before else None
    return Value(measure, value, low, high, change)


def _band(values: Mapping[str, Any], point: str) -> tuple[float | None, float | None]:
    """None twice where there is none: a floor of a sheet has no band."""
    low, high = (_number(values, f"latency_{edge}:{point}") for edge in ("low", "high"))
    return (low, high) if low is not None and high is not None and high > low else (None, None)


def _point(name: str, values: Mapping[str, Any]) -> PointInfo:
    seconds = _number(values, f"latency:{name}")
    parts = {part: float(values[f"part_{part}:{name}"]) for part in PARTS} if seconds is not None else {}
    return PointInfo(
        name, seconds, band_text("latency", *_band(values, name)), str(values[f"bound:{name}"]),
        str(values[f"mixture_bound:{name}"]), _number(values, f"measured:{name}"),
        bool(_number(values, f"extrapolated:{name}")), float(values[f"memory:{name}"]), parts,
    )  # fmt: skip


def asked_info(result: ExploreResult) -> tuple[FactGroup, ...]:
    """What was asked: base, axes, operating points, objectives, machines, and how many designs are left."""
    study, base = result.study, result.base
    own = {
        "experts": base.moe.num_experts, "top_k": base.moe.top_k, "width": base.moe.intermediate,
        "latent": base.moe.latent or 0, "shared": base.moe.shared_intermediate,
    }  # fmt: skip
    groups = [
        FactGroup(
            "Base",
            (
                Fact("model", base.name, "", base.source), Fact("mixture", design_name(own)),
                Fact("width, layers", f"{base.hidden:,}, {len(base.layers)}"),
                Fact("parameters", f"{format_parameters(base.total_params)}, {format_parameters(base.active_params)} a token"),
            ),
        ),
        FactGroup("Models", tuple(Fact(one.name, _model_text(one)) for one in study.models)) if study.models
        else FactGroup("What is varied", tuple(Fact(name, text) for name, text in _axes(result))),
        FactGroup("Operating points", tuple(Fact(point.name, _point_text(point)) for point in study.points)),
        FactGroup("Objectives", _objectives(result)),
        *(_machine(result, machine) for machine in study.machines),
        FactGroup("Designs", tuple(Fact(name, text) for name, text in _counts(result))),
    ]  # fmt: skip
    return tuple(groups)


def _axes(result: ExploreResult) -> list[tuple[str, str]]:
    found = []
    for axis, values in result.study.axes:
        if values is None or (axis in ("alpha", "split", "transform", "mixers") and len(values) == 1):
            continue
        shown = [_choice(axis, value) for value in values]
        found.append((_AXES.get(axis, axis), " · ".join(shown)))
    return found or [("axes", "none: the base alone")]


def _model_text(named: NamedModel) -> str:
    changed = [f"{_AXES.get(axis, axis)} {_choice(axis, values[0])}" for axis, values in named.axes()
               if values is not None and values != getattr(Axes(), axis)]  # fmt: skip
    return "; ".join([named.model, *(["its standard counterpart"] if named.counterpart else []), *changed])


def _choice(axis: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if value == 0:  # of a latent or shared width
        return "none"
    return f"{value:g}" if axis == "alpha" else f"{value:,}"


_AXES = {
    "top_k": "experts a token", "width": "expert width", "latent": "latent width", "shared": "shared width",
    "hidden": "model width",
}  # fmt: skip


def _point_text(point: Point) -> str:
    layout = point.operating_point("uniform").layout
    each = "1 token a sequence" if point.phase == "decode" else "whole prompts"
    text = f"{point.phase} ({each}), batch {point.batch:,}, context {point.context:,}; experts {point.weights}, other weights "
    text += f"{point.resident_weights}, load {point.load}; {layout.text()} on {layout.devices} device{'s' * (layout.devices > 1)}"
    if layout.ep > 1:
        text += f", dispatch in {point.dispatch}" + (", one copy a rank" if point.deduplicate else "")
    return text


def _objectives(result: ExploreResult) -> tuple[Fact, ...]:
    study = result.study
    found = [
        Fact(name, ", ".join(listed))
        for name, listed in (("minimise", study.objectives.minimise), ("maximise", study.objectives.maximise))
        if listed
    ]
    found += [Fact(f"limit {_words(name)}", _limit(name, value)) for name, value in study.limits.items()]
    if study.family is not None:
        at = f" at {study.family.point}" if study.family.point else ""
        share = 100 * study.family.tolerance
        found.append(Fact("family", f"the base's {study.family.iso}{at} within {share:g} %"))
    if study.search.kind != "grid":
        text = f"{study.search.kind}, {study.search.samples:,} samples, seed {study.search.seed}"
        found.append(Fact("search", text))
    return tuple(found)


def _words(name: str) -> str:
    """`max_total_params` → `max total params`, which a narrow column can break."""
    return name.replace("_", " ")


def _limit(name: str, value: float | bool) -> str:
    if isinstance(value, bool):
        return "yes" if value else "not asked for"
    return format_parameters(value) if name.endswith("_params") else significant(float(value))


def _machine(result: ExploreResult, machine: Machine) -> FactGroup:
    facts = result.facts[machine.name]
    if machine.profile is None:
        profile = Fact("profile", "none: every time is a floor of the hardware sheet")
    else:
        rows = [
            row for row in result.provenance[machine.name] if row["kind"] in HOW and row["kind"] != "roofline"
        ]
        sources = "; ".join(dict.fromkeys(str(row["source"]) for row in rows))
        profile = Fact("profile", machine.profile, "", sources or "answered nothing that was asked")
    device = Fact("device", str(facts["title"]), "", str(facts["source"]))
    return FactGroup(f"Machine {machine.name}", (device, profile))


def _counts(result: ExploreResult) -> list[tuple[str, str]]:
    counts = result.counts
    found = [("combinations of the axes", f"{counts['combinations']:,}")]
    if "asked" in counts:
        found.append(("asked for by the search", f"{counts['asked']:,}"))
    for reason, count in counts.get("left_out", {}).items():
        found.append((f"left out: {reason}", f"{count:,}"))
    for name, count in counts.get("removed", {}).items():
        if count:
            found.append((f"removed by {_words(name)}: {CONSTRAINTS.get(name, name)}", f"{count:,}"))
    if counts["costed"] != counts["designs"]:
        found.append(("costed, and not in the family", f"{counts['costed'] - counts['designs']:,}"))
    return [*found, ("designs compared", f"{counts['designs']:,}")]


def sentence_of(machine: str, choice: Choice) -> str:
    """The knee of one machine in one sentence."""
    if not choice.designs:
        return f"{machine}: no design has a value of every measure."
    knee = choice.designs[0]
    told = [
        f"{one.measure.title} {one.text}" + (f" ({one.against} against the base)" if one.against else "")
        for one in knee.values
    ]
    return f"{machine}: the knee is {knee.name}, with {', '.join(told)}."


def source_infos(result: ExploreResult) -> tuple[FactGroup, ...]:
    """Every number that a machine's prices stand on, with its kind and source."""
    return tuple(
        FactGroup(name, tuple(_source(row) for row in rows)) for name, rows in result.provenance.items()
    )


def _source(row: Mapping[str, Any]) -> Fact:
    value, unit = row.get("value"), str(row.get("unit", ""))
    if value is None:
        text = "floor of the sheet"
    elif unit.startswith("%"):
        text = f"{float(value):.3g} {unit}"
    else:
        text = readable(float(value), unit)
    return Fact(str(row["name"]), text, str(row["kind"]), str(row["source"]))


def markdown_of(choice: Choice, measures: tuple[Measure, ...]) -> str:
    """The chosen designs and the base as a Markdown table whose columns line up."""
    titles = ["design", "derived by", "chosen as", *(one.title for one in measures), "stands on the profile"]
    shown = [*choice.designs, *([choice.base] if choice.base else [])]
    rows = [titles, *([_cell(text) for text in _cells(one)] for one in shown)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(titles))]
    padded = [[text.ljust(width) for text, width in zip(row, widths, strict=True)] for row in rows]
    lines = [f"| {' | '.join(row)} |" for row in padded]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _cells(design: DesignInfo) -> list[str]:
    shares = "; ".join(f"{one.point}: {format_percent(one.measured, 0)}" for one in design.points)
    values = [one.text + (f" ({one.band})" if one.band else "") for one in design.values]
    return [design.name, design.derived, ", ".join(design.chosen_as) or BASE, *values, shares]


def _cell(text: str) -> str:
    """A bar would end the cell."""
    return text.replace("|", "\\|")
