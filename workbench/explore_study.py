"""A study of designs as a TOML file. `docs/explore.md` is the user's guide.

base = "nemotron-3-super"                  # a model of the catalog, or a config.json
[axes]          transform = ["standard", "latent-accuracy"]   alpha = [1, 2, 4]   experts = [64, 128]
[[machines]]    hardware = "h200-sxm"   profile = "h200-sxm-trtllm"
[[points]]      name = "interactive"   batch = 8   context = 4096   ep = 8   dp = 8
[limits]        multiple = 64   max_total_params = 150e9
[objectives]    minimise = ["latency:interactive", "memory:interactive"]   maximise = ["total_params"]
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..errors import InputFileError, UsageError, unknown_name
from ..files import read_toml
from ..sim.designs import TRANSFORMS, Layout, Limits, OperatingPoint
from ..sim.model_facts import LARGEST

if TYPE_CHECKING:
    from ..sim.model import ModelSpec

_STRICT = ConfigDict(extra="forbid", frozen=True)
MEASURES: Mapping[str, tuple[bool, bool]] = {
    "latency": (True, True), "throughput": (True, False), "memory": (True, True), "total_params": (False, False),
    "active_params": (False, True), "flops": (False, True), "loss": (True, True), "leverage": (True, False),
}  # fmt: skip
"""Measure → (takes a name after a colon: a point, or a law of accuracy; small is good)."""


class Axes(BaseModel):
    """What is varied. What is not named is as in the base; `latent` and `shared` 0 mean none."""

    model_config = _STRICT

    transform: tuple[str, ...] = ("standard",)
    alpha: tuple[float, ...] = (1.0,)
    split: tuple[int, ...] = (1,)
    experts: tuple[int, ...] | None = None
    top_k: tuple[int, ...] | None = None
    width: tuple[int, ...] | None = None
    latent: tuple[int, ...] | None = None
    shared: tuple[int, ...] | None = None
    hidden: tuple[int, ...] | None = None
    layers: tuple[int, ...] | None = None
    mixers: tuple[str, ...] = ("base",)


class NamedModel(BaseModel):
    """One model to compare, instead of axes: of the catalog or a config.json, with what is changed in it.

    `counterpart`: first the standard mixture with its total and active parameters (for a latent model).
    """

    model_config = _STRICT

    name: str = Field(min_length=1)
    model: str
    counterpart: bool = False
    transform: str = "standard"
    alpha: float = 1.0
    split: int = 1
    experts: int | None = None
    top_k: int | None = None
    width: int | None = None
    latent: int | None = None
    shared: int | None = None
    hidden: int | None = None
    layers: int | None = None
    mixers: str = "base"

    def axes(self) -> Axes:
        """The same as axes of one value each."""
        own = {name: getattr(self, name) for name in Axes.model_fields}
        return Axes.model_validate({name: None if value is None else (value,) for name, value in own.items()})


class Machine(BaseModel):
    """A device and the profile that prices its kernels; without one its hardware sheet does."""

    model_config = _STRICT

    hardware: str
    profile: str | None = None

    @property
    def name(self) -> str:
        return self.hardware if self.profile is None else self.profile


class Point(BaseModel):
    """An operating point: what `sim.designs.OperatingPoint` and its layout say, flat."""

    model_config = _STRICT

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9_.-]+$")
    batch: int = Field(ge=1)
    context: int = Field(ge=1)
    phase: Literal["decode", "prefill"] = "decode"
    weights: str = "bf16"
    resident_weights: str = "bf16"
    load: str = "uniform"
    """uniform, balanced, power_law_EXPONENT, or trace:FILE: the exponent whose loads are as uneven as the trace's."""
    tp: int = Field(default=1, ge=1)
    ep: int = Field(default=1, ge=1)
    dp: int = Field(default=1, ge=1)
    deduplicate: bool = False
    dispatch: str = "fp8"

    def text(self) -> str:
        """In one line."""
        layout = Layout(self.tp, self.ep, self.dp)
        tokens = "one token each" if self.phase == "decode" else f"{self.context} new tokens each"
        return f"{self.batch} sequences, {tokens}, experts in {self.weights}, {layout.text()} on {layout.devices} devices"

    def operating_point(self, load: str | None = None) -> OperatingPoint:
        layout = Layout(self.tp, self.ep, self.dp)
        return OperatingPoint(
            self.name, self.batch, self.context, self.phase, self.weights, self.resident_weights,
            load=load or self.load, layout=layout, deduplicate=self.deduplicate, dispatch=self.dispatch,
        )  # fmt: skip


class Objectives(BaseModel):
    """Measures by name: latency:POINT, throughput:POINT (tokens/s a device), memory:POINT, total_params, active_params,
    flops, loss:LAW, leverage:LAW."""

    model_config = _STRICT

    minimise: tuple[str, ...] = ()
    maximise: tuple[str, ...] = ()


class Family(BaseModel):
    """Only designs that equal the base (α = 1, nothing changed) in one quantity, within a share of it."""

    model_config = _STRICT

    iso: Literal["flops", "params", "active_params", "latency", "memory"]
    tolerance: float = Field(default=0.05, gt=0, lt=1)
    point: str | None = None
    """Of latency and memory: at which operating point."""
    match_width: bool = False
    """First give each design the expert width that brings it nearest (flops, params and active_params alone)."""


class Search(BaseModel):
    """How the designs are gone through. The grid holds every combination; the samplers are Optuna's."""

    model_config = _STRICT

    kind: Literal["grid", "nsga2", "tpe", "random"] = "grid"
    samples: int | None = Field(default=None, ge=1)
    batch: int = Field(default=64, ge=1)
    seed: int = Field(default=0, ge=0)


class Training(BaseModel):
    """`--train`: a small standard mixture and its variants, at equal FLOPs a token, really trained on the same text."""

    model_config = _STRICT

    tokens: int = Field(default=1_500_000, ge=1)
    seeds: tuple[int, ...] = (0, 1, 2)
    transform: Literal["latent-efficiency", "latent-accuracy"] = "latent-accuracy"
    alpha: tuple[int, ...] = (2, 4, 8)
    hidden: int = Field(default=128, ge=2)
    layers: int = Field(default=4, ge=1)
    heads: int = Field(default=4, ge=1)
    experts: int = Field(default=16, ge=1)
    top_k: int = Field(default=2, ge=1)
    width: int = Field(default=128, ge=4)
    gated: bool = True

    def models(self) -> dict[str, ModelSpec]:
        """The base and its variants by name. Raises `UsageError` for a width or α that no model fits."""
        from ..sim.small_designs import latent_of, small_moe

        base = small_moe(
            hidden=self.hidden, layers=self.layers, heads=self.heads, num_experts=self.experts, top_k=self.top_k,
            expert_width=self.width, gated=self.gated,
        )  # fmt: skip
        accuracy = self.transform == "latent-accuracy"
        return {"standard": base} | {
            f"{self.transform} α={alpha}": latent_of(base, alpha, scale_top_k=accuracy) for alpha in self.alpha
        }


class DesignStudy(BaseModel):
    """A study of designs as written."""

    model_config = _STRICT

    name: str = "designs"
    about: str = ""
    base: str | None = None
    """None where [[models]] are named: the first of them is what the others are held against."""
    axes: Axes = Axes()
    models: tuple[NamedModel, ...] = ()
    machines: tuple[Machine, ...] = Field(min_length=1)
    points: tuple[Point, ...] = Field(min_length=1)
    limits: dict[str, Any] = Field(default_factory=dict)
    objectives: Objectives
    family: Family | None = None
    accuracy_tokens: float | None = Field(default=None, gt=0)
    """Training tokens that the laws of accuracy are asked for."""
    extrapolate: Literal["widen", "refuse"] = "widen"
    """Shapes beyond what a profile has measured: with a wider band, or left out."""
    search: Search = Search()
    train: Training | None = None

    def content_hash(self) -> str:
        """SHA-256 over the whole study, whatever its layout."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    def checked_limits(self) -> Limits:
        known = set(Limits.__dataclass_fields__)
        for name in self.limits:
            if name not in known:
                raise unknown_name("limit", name, known)
        for name, value in self.limits.items():
            if name == "memory":
                if not isinstance(value, bool):
                    raise UsageError(f"limit memory: expected true or false, got {value!r}")
                continue
            wanted = int if name == "multiple" else (int, float)
            if not isinstance(value, wanted) or isinstance(value, bool) or value <= 0:
                raise UsageError(f"limit {name}: expected a number above 0, got {value!r}")
        for what in ("total_params", "active_params"):
            low, high = self.limits.get(f"min_{what}"), self.limits.get(f"max_{what}")
            if low is not None and high is not None and low > high:
                raise UsageError(f"limits min_{what} = {low:g} and max_{what} = {high:g} contradict each other")
        return Limits(**self.limits)

    def measures(self) -> list[tuple[str, bool]]:
        """(measure, whether small is good), minimised ones first."""
        return [(one, True) for one in self.objectives.minimise] + [(one, False) for one in self.objectives.maximise]


def load_design_study(path: str | Path) -> DesignStudy:
    """Read and check a study of designs. Raises `InputFileError` naming the key, its value and what would be right."""
    source, table = Path(path), read_toml(path)
    try:
        _refuse_unknown(table)
        study = DesignStudy.model_validate(table)
        _check(study)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        got = "" if first["type"] == "missing" else f", got {first['input']!r}"
        raise InputFileError(source, f"{first['msg']}{got}", where=field) from error
    except UsageError as error:
        raise InputFileError(source, str(error)) from error
    return study


def _refuse_unknown(table: Mapping[str, Any]) -> None:
    groups: tuple[tuple[str, type[BaseModel]], ...] = (
        ("axes", Axes), ("objectives", Objectives), ("family", Family), ("search", Search), ("train", Training),
        ("machines", Machine), ("points", Point), ("models", NamedModel),
    )  # fmt: skip
    _known("key", table, DesignStudy)
    for name, model in groups:
        found = table.get(name)
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, dict):
                _known(f"key of [{name}]", one, model)


def _known(kind: str, given: Mapping[str, Any], model: type[BaseModel]) -> None:
    for name in given:
        if name not in model.model_fields:
            raise unknown_name(kind, name, model.model_fields)


def _check(study: DesignStudy) -> None:
    names = [point.name for point in study.points]
    if len(set(names)) < len(names):
        raise UsageError(f"points: two are named {max(names, key=names.count)}")
    machines = [machine.name for machine in study.machines]
    if len(set(machines)) < len(machines):
        raise UsageError(f"machines: {max(machines, key=machines.count)} stands there twice")
    if (study.base is None) != bool(study.models):
        raise UsageError("a study needs either base, whose [axes] are varied, or [[models]] to compare, and not both")
    if study.models and (study.axes != Axes() or study.search.kind != "grid"):
        raise UsageError("[[models]] are compared as they stand: [axes] and [search] are for a base")
    labels = [named.name for named in study.models]
    if len(set(labels)) < len(labels):
        raise UsageError(f"models: two are named {max(labels, key=labels.count)}")
    for axes in (study.axes, *(named.axes() for named in study.models)):
        _check_axes(axes)
    for point in study.points:
        point.operating_point("uniform" if point.load.startswith("trace:") else None)
    if not study.measures():
        raise UsageError("[objectives] names nothing to minimise or maximise")
    for measure, _ in study.measures():
        check_measure(study, measure)
    if study.family is not None and study.family.iso in ("latency", "memory"):
        if study.family.point not in names:
            raise unknown_name("point of [family]", str(study.family.point), names)
        if study.family.match_width:
            raise UsageError("[family] match_width works for flops, params and active_params")
    if (study.search.kind == "grid") != (study.search.samples is None):
        raise UsageError(f"[search] samples is needed by every kind but grid; this is {study.search.kind}")
    study.checked_limits()


def _check_axes(axes: Axes) -> None:
    for axis, values in axes:
        if values is not None and not values:
            raise UsageError(f"axis {axis} has no values, so the study has no designs")
        if values is not None and axis not in ("transform", "mixers"):
            least = 0 if axis in ("latent", "shared") else 1
            for value in values:
                if not least <= value <= LARGEST:
                    raise UsageError(f"axis {axis}: every value must be from {least} to 2⁴⁰, got {value:g}")
    for transform in axes.transform:
        if transform not in TRANSFORMS:
            raise unknown_name("transform", transform, TRANSFORMS)


def check_measure(study: DesignStudy, measure: str) -> None:
    """Raises `UsageError` for a measure that the study cannot answer, naming the nearest one."""
    from ..sim.accuracy import ACCURACY_LAWS

    kind, colon, name = measure.partition(":")
    if kind not in MEASURES:
        raise unknown_name("measure", kind, MEASURES)
    if MEASURES[kind][0] != bool(colon):
        raise UsageError(f"measure {measure!r}: write {kind}:NAME" if MEASURES[kind][0] else f"measure {measure!r}: write {kind}")
    if kind in ("loss", "leverage"):
        if name == "trained" and kind == "loss":
            return
        if name not in ACCURACY_LAWS:
            raise unknown_name("law of accuracy", name, [*ACCURACY_LAWS, "trained"])
        if study.accuracy_tokens is None:
            raise UsageError(f"measure {measure!r} needs accuracy_tokens: for how many training tokens")
    elif colon and name not in {point.name for point in study.points}:
        raise unknown_name(f"point of the measure {kind}", name, [point.name for point in study.points])
