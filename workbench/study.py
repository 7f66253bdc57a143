"""A study: a set of scenarios in one TOML file. `docs/studies.md` is the user's guide.

kind = "grid"                       # or list, random, sobol
[traces.mine]  path = "…"           # files, or `synth = {…}`
[axes]         policy = ["lru", …]  # every option of a scenario: one value, a list, or a range
[derived]      prefetch_budget_bytes = "whole(link_bytes_per_s * 0.001)"
filters = ["policy != 'static' or prefetch == 'none'"]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import InputFileError, UsageError, unknown_name
from ..files import read_toml
from .study_axes import Axis, Range, drawn, grid, grid_size, sobol
from .study_expression import Expression
from .sweep_point import FIELDS, Point

_STRICT = ConfigDict(extra="forbid", frozen=True)


class Synth(BaseModel):
    """A trace to be synthesised: the options of `workbench trace synth`, by the same meaning."""

    model_config = _STRICT

    model: str | None = None
    layers: int | None = Field(default=None, ge=1)
    experts: int | None = Field(default=None, ge=1)
    top_k: int | None = Field(default=None, ge=1)
    tokens: int = Field(default=1000, ge=1)
    sequences: int = Field(default=1, ge=1)
    prefill: int = Field(default=0, ge=0)
    reuse: float | None = Field(default=None, ge=0, le=1)
    skew: float = Field(default=0.0, ge=0, le=8)
    cross_layer: float = Field(default=0.0, ge=0, le=1)
    guess_recall: float | None = Field(default=None, ge=0, le=1)
    lookahead: int = Field(default=1, ge=1)
    guesses: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)


class TraceInput(BaseModel):
    """Where a trace comes from: a file (relative to the study), or numbers to synthesise it from."""

    model_config = _STRICT

    path: str | None = None
    synth: Synth | None = None
    format: str | None = None
    model: str | None = None
    """Model of the scenarios that name none."""


class Study(BaseModel):
    """A study as written. `points()` streams its scenarios."""

    model_config = _STRICT

    name: str = "study"
    about: str = ""
    kind: Literal["grid", "list", "random", "sobol"] = "grid"
    samples: int | None = Field(default=None, ge=1)
    seed: int = Field(default=0, ge=0)
    repeats: int = Field(default=1, ge=1)
    traces: dict[str, TraceInput]
    axes: dict[str, Range | list[Any] | str | int | float | bool] = Field(default_factory=dict)
    variables: dict[str, Range | list[Any] | str | int | float | bool] = Field(default_factory=dict)
    """Axes that are no option themselves; derived values and filters use them."""
    derived: dict[str, str] = Field(default_factory=dict)
    filters: tuple[str, ...] = ()
    points: tuple[dict[str, Any], ...] = ()
    """The scenarios of a `list`; what a point leaves out comes from the axes, which then have one value each."""

    def content_hash(self) -> str:
        """SHA-256 over the whole study: equal for files that ask for the same, whatever their layout."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    def all_axes(self) -> dict[str, Axis]:
        """Axes and variables with their values, traces first: so that scenarios of one trace follow one another."""
        found = {**self.axes, **self.variables}
        whole: dict[str, Axis] = {"trace": list(self.traces)}
        if "trace" in found:
            whole["trace"] = _axis(found.pop("trace"))
        return whole | {name: _axis(values) for name, values in found.items()}

    def most(self) -> int:
        """How many scenarios there are before filters and without duplicates taken out."""
        return self.repeats * (
            len(self.points) if self.kind == "list" else self.samples or grid_size(self.all_axes())
        )

    def scenarios(self) -> Iterator[Point]:
        """Each scenario in the study's order, one at a time. Raises `UsageError` naming the field that is wrong."""
        names = {*FIELDS, *self.variables}
        derived = {name: Expression(text, names) for name, text in self.derived.items()}
        filters = [Expression(text, names) for text in self.filters]
        defaults = {name: field.default for name, field in Point.model_fields.items() if name != "trace"}
        for values in self._combinations():
            seen = defaults | values
            for name, expression in derived.items():
                seen[name] = expression.value(seen)
            if not all(one.value(seen) for one in filters):
                continue
            chosen = {name: seen[name] for name in FIELDS if name in seen}
            for repeat in range(self.repeats):
                numbered = (
                    {"seed": seen["seed"] + repeat, "repeat": seen["repeat"] + repeat} if repeat else {}
                )
                yield _point(chosen | numbered)

    def _combinations(self) -> Iterator[dict[str, Any]]:
        axes = self.all_axes()
        if self.kind == "grid":
            return grid(axes)
        if self.kind == "list":
            return self._listed(axes)
        assert self.samples is not None
        return (drawn if self.kind == "random" else sobol)(axes, self.samples, self.seed)

    def _listed(self, axes: Mapping[str, Axis]) -> Iterator[dict[str, Any]]:
        common = {name: axis[0] for name, axis in axes.items() if isinstance(axis, list) and len(axis) == 1}
        for point in self.points:
            yield common | point


def _axis(values: Any) -> Axis:
    if isinstance(values, Range | list):
        return values
    return [values]


def _point(values: Mapping[str, Any]) -> Point:
    try:
        return Point.model_validate(
            {name: None if value == "sheet" else value for name, value in values.items()}
        )
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        got = "" if first["type"] == "missing" else f", got {first['input']!r}"
        raise UsageError(f"{field}: {first['msg']}{got}") from error


def load_study(path: str | Path) -> Study:
    """Read and check a study. Raises `InputFileError` naming the key, its value and what would be right."""
    source, table = Path(path), read_toml(path)
    try:
        _refuse_unknown(table)
        study = Study.model_validate(table)
        _check(study)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"] if part not in ("Range", "list[any]"))
        got = "" if first["type"] == "missing" else f", got {first['input']!r}"
        raise InputFileError(source, f"{first['msg']}{got}", where=field) from error
    except UsageError as error:
        raise InputFileError(source, str(error)) from error
    return study


def _refuse_unknown(table: Mapping[str, Any]) -> None:
    """Unknown keys, the nearest known one named: a misspelt axis would silently be the default otherwise."""
    _known("key", table, Study.model_fields)
    for name, trace in _tables(table, "traces"):
        _known(f"key of trace {name}", trace, TraceInput.model_fields)
        if isinstance(trace.get("synth"), dict):
            _known(f"key of trace {name}, synth", trace["synth"], Synth.model_fields)
    _known("axis", _dict(table, "axes"), FIELDS)
    for group in ("axes", "variables"):
        for name, axis in _tables(table, group):
            _known(f"key of range {name}", axis, Range.model_fields)
    variables = _dict(table, "variables")
    _known("derived axis", _dict(table, "derived"), FIELDS)
    points = table.get("points")
    for point in points if isinstance(points, list) else []:
        if isinstance(point, dict):
            _known("option of a point", point, (*FIELDS, *variables))


def _known(kind: str, given: Mapping[str, Any], known: Any) -> None:
    for name in given:
        if name not in known:
            raise unknown_name(kind, name, known)


def _dict(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = table.get(name)
    return found if isinstance(found, dict) else {}


def _tables(table: Mapping[str, Any], name: str) -> list[tuple[str, dict[str, Any]]]:
    return [(key, value) for key, value in _dict(table, name).items() if isinstance(value, dict)]


def _check(study: Study) -> None:
    if not study.traces:
        raise UsageError("a study needs at least one trace: [traces.NAME] with path or synth")
    for name, trace in study.traces.items():
        if (trace.path is None) == (trace.synth is None):
            raise UsageError(f"trace {name} needs either a path or synth, and not both")
    if both := set(study.variables) & set(FIELDS):
        raise UsageError(f"variable {min(both)} is an option of scenarios already: write it under [axes]")
    for name, axis in study.all_axes().items():
        if isinstance(axis, list) and not axis:
            raise UsageError(f"axis {name} has no values, so the study has no scenarios")
        if isinstance(axis, Range) and axis.steps is None and study.kind == "grid":
            raise UsageError(
                f"axis {name} is a range in a grid and needs steps: how many values to lay over it"
            )
        if study.kind == "list" and not (isinstance(axis, list) and len(axis) == 1) and name != "trace":
            raise UsageError(
                f'axis {name} has several values in a list study: name one, or use kind = "grid"'
            )
    if (study.kind in ("random", "sobol")) != (study.samples is not None):
        raise UsageError(
            f"samples is needed by the kinds random and sobol and by no other; this is {study.kind}"
        )
    if (study.kind == "list") != bool(study.points):
        raise UsageError(f"[[points]] are needed by the kind list and by no other; this is {study.kind}")
    first = next(iter(study.scenarios()), None)
    if first is None:
        raise UsageError("the study has no scenarios: its filters leave none over")
    traces = study.all_axes()["trace"]
    used = (
        traces
        if isinstance(traces, list) and study.kind != "list"
        else [p.get("trace", "") for p in study.points]
    )
    for name in used:
        if name and name not in study.traces:
            raise unknown_name("trace", str(name), study.traces)
