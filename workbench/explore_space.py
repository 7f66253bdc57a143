"""From a study's axes to designs: every combination, transformed, without those that are no whole numbers or twins."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..sim.designs import TRANSFORMS, Designs, resized, standard_counterpart
from ..sim.designs.columns import SHAPE
from ..sim.designs.transform import Shape, fine_grained
from ..sim.model import ModelSpec
from .explore_study import Axes, Family, NamedModel

MOST = 2_000_000
"""Combinations that a grid may have: more than that is for [search]."""


@dataclass
class Space:
    """All designs of a study, what each was derived by, and how many combinations were left out for what reason."""

    designs: Designs
    transform: NDArray[np.str_]
    """[R] by which each was derived."""
    alpha: NDArray[np.float64]
    combinations: int
    left_out: dict[str, int] = field(default_factory=dict)
    names: NDArray[np.str_] | None = None
    """[R] as the study names them; None: by their shapes."""

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Space:
        return Space(
            self.designs.take(rows), self.transform[rows], self.alpha[rows], self.combinations, self.left_out,
            None if self.names is None else self.names[rows],
        )  # fmt: skip


def skeletons_of(base: ModelSpec, axes: Axes) -> tuple[list[ModelSpec | None], list[str]]:
    """The base at every width, depth and choice of mixers; None where that cannot be, with the reasons."""
    found: list[ModelSpec | None] = []
    reasons = []
    for hidden, layers, mixers in itertools.product(
        axes.hidden or (None,), axes.layers or (None,), axes.mixers
    ):
        try:
            model = resized(base, hidden=hidden, layers=layers, mixers=mixers)
            if not model.is_moe:
                raise UsageError(f"{layers} layers leave no mixture of experts")
            found.append(model)
        except UsageError as error:
            found.append(None)
            reasons.append(str(error))
    if all(model is None for model in found):
        raise UsageError(f"no width, depth and choice of mixers is possible: {reasons[0]}")
    return found, reasons


def size_of(axes: Axes) -> int:
    """Combinations of a grid."""
    count = 1
    for _, values in axes:
        count *= 1 if values is None else len(values)
    return count


def choices(base: ModelSpec, axes: Axes) -> dict[str, Sequence[object]]:
    """Every axis of the mixture with its values, the base's own where the study names none. `skeleton` comes first."""
    moe = base.moe
    own = {
        "experts": moe.num_experts, "top_k": moe.top_k, "width": moe.intermediate, "latent": moe.latent or 0,
        "shared": moe.shared_intermediate,
    }  # fmt: skip
    count = len(axes.hidden or (None,)) * len(axes.layers or (None,)) * len(axes.mixers)
    found: dict[str, Sequence[object]] = {"skeleton": range(count), "transform": range(len(axes.transform))}
    found["alpha"], found["split"] = axes.alpha, axes.split
    for name in SHAPE:
        given = getattr(axes, name)
        found[name] = (own[name],) if given is None else given
    return found


def grid_space(base: ModelSpec, axes: Axes) -> Space:
    """Every combination. Raises `UsageError` for more than `MOST` of them."""
    count = size_of(axes)
    if count > MOST:
        raise UsageError(f"the grid has {count:,} combinations, more than {MOST:,}: sample it with [search]")
    values = [np.asarray(list(one), np.float64) for one in choices(base, axes).values()]
    mesh = np.stack([part.reshape(-1) for part in np.meshgrid(*values, indexing="ij")])
    return space_of(base, axes, mesh)


def space_of(base: ModelSpec, axes: Axes, combinations: NDArray[np.float64]) -> Space:
    """Designs of given combinations [axes of `choices`, R]; a skeleton that cannot be and twins are left out."""
    models, reasons = skeletons_of(base, axes)
    columns = dict(zip(choices(base, axes), combinations, strict=True))
    left_out: dict[str, int] = {}
    skeleton = columns["skeleton"].astype(np.int64)
    there = np.array([model is not None for model in models])[skeleton]
    if reasons:
        left_out[f"no such model around the mixture (for one: {reasons[0]})"] = int((~there).sum())
    known = [model for model in models if model is not None]
    number = np.cumsum([model is not None for model in models]) - 1
    hidden = np.array([0 if model is None else model.hidden for model in models], np.int64)[skeleton]
    shape: Shape = {name: columns[name].astype(np.int64) for name in SHAPE} | {"hidden": hidden}
    shape, whole = fine_grained(shape, columns["split"].astype(np.int64))
    transform, alpha = columns["transform"].astype(np.int64), columns["alpha"]
    for code, name in enumerate(axes.transform):
        rows = np.flatnonzero(transform == code)
        made, fits = TRANSFORMS[name]({key: value[rows] for key, value in shape.items()}, alpha[rows])
        for key in shape:
            shape[key][rows] = made[key]
        whole[rows] &= fits
    left_out["not whole numbers after the transformation"] = int((there & ~whole).sum())
    kept = np.flatnonzero(there & whole)
    if not len(kept):
        raise UsageError(f"no combination of the axes gives a design: {'; '.join(left_out)}")
    table = np.stack([number[skeleton], *(shape[name] for name in SHAPE)])[:, kept]
    _, first = np.unique(table, axis=1, return_index=True)
    first = np.sort(first)
    left_out["the same as another"] = len(kept) - len(first)
    chosen = kept[first]
    designs = Designs(tuple(known), number[skeleton][chosen], **{name: shape[name][chosen] for name in SHAPE})
    standard = designs.latent == 0
    return Space(
        designs, np.array(axes.transform)[transform[chosen]], np.where(standard, 1.0, alpha[chosen]), combinations.shape[1],
        {reason: count for reason, count in left_out.items() if count},
    )  # fmt: skip


def named_space(models: Sequence[tuple[NamedModel, ModelSpec]]) -> Space:
    """The models that a study names, each with its changes. Raises `UsageError` naming the one that cannot be."""
    spaces = []
    for named, model in models:
        base = standard_counterpart(model) if named.counterpart else model
        try:
            spaces.append(space_of(base, named.axes(), _only(base, named.axes())))
        except UsageError as error:
            raise UsageError(f"model {named.name}: {error}") from error
    space = merged(spaces)
    space.names = np.array([named.name for named, _ in models])
    space.transform = np.array([_derived(named) for named, _ in models])
    return space


def _derived(named: NamedModel) -> str:
    """How a named model came about, in a word or two."""
    if named.counterpart:
        return "standard counterpart"
    changed = [name for name, value in named.axes() if value is not None and value != getattr(Axes(), name)]
    if named.transform != "standard":
        return named.transform
    return f"other {', '.join(changed)}" if changed else "as published"


def _only(base: ModelSpec, axes: Axes) -> NDArray[np.float64]:
    """The one combination of axes with one value each."""
    return np.array([[float(values[0])] for values in choices(base, axes).values()])  # type: ignore[arg-type]


def merged(spaces: Sequence[Space]) -> Space:
    """Spaces side by side. Raises `UsageError` for mixtures that differ in more than their shape (gate, biases)."""
    numbers: dict[ModelSpec, int] = {}
    skeleton = []
    for space in spaces:
        for code in space.designs.skeleton.tolist():
            skeleton.append(numbers.setdefault(space.designs.skeletons[code], len(numbers)))
    flags = ("gated", "expert_bias", "router_bias", "shared_gate", "latent_norm")
    kinds = {tuple(getattr(model.moe, flag) for flag in flags) for model in numbers}
    if len(kinds) > 1:
        names = ", ".join(model.name for model in numbers)
        raise UsageError(f"mixtures with and without a gate, biases or a latent norm cannot stand in one study: {names}")
    columns = {name: np.concatenate([getattr(s.designs, name) for s in spaces]) for name in SHAPE}
    return Space(
        Designs(tuple(numbers), np.array(skeleton, np.int64), **columns),
        np.concatenate([s.transform for s in spaces]), np.concatenate([s.alpha for s in spaces]),
        sum(s.combinations for s in spaces),
    )  # fmt: skip


def matched(space: Space, base: ModelSpec, family: Family, multiple: int) -> Space:
    """Each design with the expert width that brings it nearest to the base in the family's quantity."""
    designs = space.designs
    target, own = family_values(Designs.of([base]), family)[0], family_values(designs, family)
    experts = designs.experts if family.iso == "params" else designs.top_k
    slope = experts * designs.matrices * designs.expert_width * designs.moe_layers
    slope = slope * (2.0 if family.iso == "flops" else 1.0)
    width = designs.width + (target - own) / slope
    rounded = np.maximum(np.rint(width / multiple), 1).astype(np.int64) * multiple
    columns = {name: getattr(designs, name) for name in SHAPE} | {"width": rounded}
    return Space(
        Designs(designs.skeletons, designs.skeleton, **columns), space.transform, space.alpha, space.combinations,
        space.left_out, space.names,
    )  # fmt: skip


def family_values(designs: Designs, family: Family) -> NDArray[np.float64]:
    """The quantity of a family that no cost is needed for."""
    return {
        "flops": designs.active_flops_per_token, "params": designs.total_params,
        "active_params": designs.active_params,
    }[family.iso]  # fmt: skip
