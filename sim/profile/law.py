"""The law of one operation: a physical form times a correction, chosen by its error on shapes that it was not fitted on.

Candidates: the physical form with one factor per group and grid point; a smooth surface over shapes on top; boosted
trees on top of both, which also see the shape's twins. Each shape is judged by surfaces and trees fitted without it, in
folds of whole shapes; bands are conformal on those errors (cross-conformal: Vovk 2015, arXiv 1208.0806), with scores
divided by each grid point's usual error; for models never measured, on whole models left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from .bands import conformal, usual_error
from .features import cell_features
from .grids import UNKNOWN_ROOF, Grid
from .models import NewModels, fit_new_models, plain_features
from .roof import Roof
from .surface import Surface, fit_surface
from .trees import Trees, fit_trees

Floats = NDArray[np.float64]
FEW_ROWS, FEW_SHAPES = 3000, 40
"""Below either, trees are not tried: too little to learn waves and kernel changes from."""
_ROUNDS, _LEAVES = 300, 63
"""Of the trees; chosen on left-out training shapes of H200's decode attention."""
_FOLDS = 3  # of whole shapes, for judging the trees
_OWN_BAND = 20  # shapes from which a group has a band of its own


@dataclass
class GroupLaw:
    """One group's grid, its surface (and the one for new models), and per grid point the usual error [A·B]."""

    grid: Grid
    surface: Surface
    scale: Floats
    band: float
    model_surface: Surface | None = None
    model_scale: Floats = field(default_factory=lambda: np.zeros(0))
    model_share: float = 0.0
    """How much of the trees for new models is believed, against the surface."""


@dataclass
class OperationLaw:
    """The law of one operation: its groups, the trees over all of them, which candidate was chosen and by what errors."""

    operation: str
    groups: list[GroupLaw]
    chosen: str
    errors: dict[str, float]
    trees: Trees | None = None
    model_trees: Trees | None = None
    model_band: float = float("nan")
    interpolation: int = 0
    interpolation_errors: dict[str, float] = field(default_factory=dict)
    interpolation_band: float = 0.05

    def log_ratio(self, number: int, shapes: Floats, roof: Roof, *, new_model: bool = False) -> Floats:
        """Guess for shapes never measured [Q, A·B]: log(time / physical form) at the group's grid points."""
        law = self.groups[number]
        new = new_model and law.model_surface is not None
        surface = law.model_surface if new and law.model_surface is not None else law.surface
        guess = np.broadcast_to(surface.mean, (len(shapes), len(surface.mean))).copy()
        if self.chosen != "physical" or new:
            guess = surface.at(law.grid.coords_of(shapes))
        trees = self.model_trees if new else self.trees
        if trees is None or (new and law.model_share == 0.0):
            return guess
        seen = cell_features(law.grid, number, shapes, guess, roof)
        if not new:
            return np.asarray(guess + trees.predict(seen).reshape(guess.shape))
        plain = surface.mean + trees.predict(plain_features(seen, law.grid)).reshape(guess.shape)
        return np.asarray(guess + law.model_share * (plain - guess))


def shape_number(shape: object) -> int:
    """A number that any process gives the same shape, spread evenly."""
    return int(hashlib.sha256(repr(shape).encode()).hexdigest()[:15], 16)


def fit_law(
    operation: str, grids: list[Grid], roof: Roof | None, *, seed: int = 0, threads: int = 2,
    progress: Callable[[str], None] | None = None, models: bool = True, rounds: int | None = None,
) -> OperationLaw:  # fmt: skip
    """Fit all candidates, choose by the error on shapes left out, and calibrate the bands there.

    `models`: also the law and band for models never measured. `rounds`: trees, None for the usual number.
    """
    say = progress or (lambda _: None)
    known_roof = roof or UNKNOWN_ROOF
    say(f"{operation}: surfaces of {len(grids)} groups")
    surfaces = [fit_surface(grid.coords, grid.ratio) for grid in grids]
    known = [np.isfinite(grid.ratio) for grid in grids]
    guesses = {
        "physical": [np.broadcast_to(s.mean, g.ratio.shape) for s, g in zip(surfaces, grids, strict=True)],
        "surface": [surface.left_out for surface in surfaces],
    }
    rows, shapes = sum(int(k.sum()) for k in known), sum(len(grid.shapes) for grid in grids)
    trees: Trees | None = None
    if rows >= FEW_ROWS and shapes >= FEW_SHAPES:
        say(f"{operation}: trees on {rows} rows")
        trees, added = _judged_trees(grids, surfaces, known, known_roof, seed, threads, rounds or _ROUNDS)
        guesses["trees"] = [s.left_out + a for s, a in zip(surfaces, added, strict=True)]
    errors = {name: _score(guess, grids, known) for name, guess in guesses.items()}
    chosen = min(errors, key=lambda name: errors[name])
    rest = [np.abs(g.ratio - guess) for g, guess in zip(grids, guesses[chosen], strict=True)]
    law = OperationLaw(operation, [], chosen, errors, trees if chosen == "trees" else None)
    scales = [usual_error(error, len(grid.b)) for error, grid in zip(rest, grids, strict=True)]
    scores = [(error / scale)[k] for error, scale, k in zip(rest, scales, known, strict=True)]
    pooled = conformal(np.concatenate(scores))
    for grid, surface, scale, score in zip(grids, surfaces, scales, scores, strict=True):
        band = conformal(score) if len(grid.shapes) >= _OWN_BAND else pooled
        law.groups.append(GroupLaw(grid, surface, scale, band))
    if models and grids[0].axes.model and trees is not None:
        say(f"{operation}: models left out")
        _take(law, fit_new_models(grids, known_roof, seed, threads))
    return law


def _take(law: OperationLaw, new: NewModels) -> None:
    law.model_trees, law.model_band = new.trees, new.band
    for group, surface, scale, share in zip(law.groups, new.surfaces, new.scales, new.shares, strict=True):
        group.model_surface, group.model_scale, group.model_share = surface, scale, share


def _judged_trees(
    grids: list[Grid], surfaces: list[Surface], known: list[NDArray[np.bool_]], roof: Roof, seed: int, threads: int,
    rounds: int,
) -> tuple[Trees, list[Floats]]:  # fmt: skip
    """Trees on all rows, and what trees fitted without a shape add to its surface, [S, A·B] per group."""
    pairs = enumerate(zip(grids, surfaces, strict=True))
    seen = [cell_features(grid, i, grid.shapes, surface.left_out, roof) for i, (grid, surface) in pairs]
    X = np.concatenate([f[k.reshape(-1)] for f, k in zip(seen, known, strict=True)])
    y = np.concatenate([(g.ratio - s.left_out)[k] for g, s, k in zip(grids, surfaces, known, strict=True)])
    folds = []
    for grid, mask in zip(grids, known, strict=True):
        formats = sorted((k, v) for k, v in grid.group.items() if k not in ("framework", "kernel"))
        number = [shape_number((formats, tuple(shape))) % _FOLDS for shape in grid.shapes.tolist()]
        folds.append(np.repeat(number, mask.sum(axis=1)))
    fold, guess = np.concatenate(folds), np.zeros(len(y))
    for one in range(_FOLDS):
        use, inside = fold != one, fold == one
        if inside.any() and use.any():
            part = fit_trees(X[use], y[use], rounds=rounds, leaves=_LEAVES, seed=seed, threads=threads)
            guess[inside] = part.predict(X[inside])
    added, start = [], 0
    for grid, mask in zip(grids, known, strict=True):
        filled = np.full(grid.ratio.shape, np.nan)
        filled[mask] = guess[start : start + int(mask.sum())]
        start += int(mask.sum())
        added.append(filled)
    return fit_trees(X, y, rounds=rounds, leaves=_LEAVES, seed=seed, threads=threads), added


def _score(guess: list[Floats], grids: list[Grid], known: list[NDArray[np.bool_]]) -> float:
    """Median plus a fifth of the 90th percentile of |log error| of shapes left out."""
    errors = np.concatenate([np.abs(g.ratio - v)[k] for g, v, k in zip(grids, guess, known, strict=True)])
    if not len(errors):
        return float("inf")
    return float(np.median(errors) + 0.2 * np.quantile(errors, 0.9))
