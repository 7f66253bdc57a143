"""The law of one operation: a physical form times a correction, chosen by its error on shapes that it was not fitted on.

Candidates: the physical form with one factor per group and grid point; a smooth surface over shapes on top; boosted
trees on top of both. Bands are split conformal (Lei et al. 2018, arXiv 1604.04173) on whole shapes kept aside, with
scores divided by each grid point's usual error; for models never measured, on whole models left out.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .features import features
from .grids import UNKNOWN_ROOF, Grid
from .roof import Roof
from .surface import Surface, fit_surface
from .trees import Trees, fit_trees

Floats = NDArray[np.float64]
LEVEL = 0.9
FEW_ROWS, FEW_SHAPES = 3000, 40
"""Below either, trees are not tried: too little to learn waves and kernel changes from."""
_TREES = {"attention_decode": (300, 127)}
"""Rounds and leaves other than 150 and 63: decode kernels split by heuristics with sharp edges (score kept aside, `_score`, fell
from 0.043 to 0.041 on H200, one run each; other operations were not tried)."""
_CALIBRATION = 7  # one shape in seven is kept aside for choosing and for bands
_MOST_ROWS = 80_000
"""Rows that the trees for new models are fitted on, drawn at random: more change nothing that shows."""


@dataclass
class GroupLaw:
    """One group's grid, its surface (and the one for new models), and per grid point the usual error [A·B]."""

    grid: Grid
    surface: Surface
    scale: Floats
    band: float
    model_surface: Surface | None = None
    model_scale: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass
class OperationLaw:
    """The law of one operation: its groups, the trees over all of them, which candidate was chosen and by what errors."""

    operation: str
    groups: list[GroupLaw]
    chosen: str
    errors: dict[str, float]
    trees: Trees | None = None
    model_trees: Trees | None = None
    model_plain: Trees | None = None
    model_band: float = float("nan")
    interpolation: int = 0
    interpolation_errors: dict[str, float] = field(default_factory=dict)
    interpolation_band: float = 0.05

    def log_ratio(self, number: int, shapes: Floats, roof: Roof, *, new_model: bool = False) -> Floats:
        """Guess for shapes never measured [Q, A·B]: log(time / physical form) at the group's grid points."""
        law = self.groups[number]
        surface = law.model_surface if new_model and law.model_surface is not None else law.surface
        coords = law.grid.coords_of(shapes)
        guess = np.broadcast_to(surface.mean, (len(shapes), len(surface.mean))).copy()
        if self.chosen != "physical":
            guess = surface.at(coords)
        first, second = (self.model_trees, self.model_plain) if new_model else (self.trees, None)
        if first is None:
            return guess
        seen = cell_features(law.grid, number, shapes, guess, roof)
        added = guess + first.predict(seen).reshape(guess.shape)
        if second is None:
            return np.asarray(added)
        plain = surface.mean + second.predict(_without_guess(seen)).reshape(guess.shape)
        return np.asarray((added + plain) / 2.0)


def shape_number(shape: tuple[float, ...]) -> int:
    """A number that any process gives the same shape, spread evenly."""
    return int(hashlib.sha256(repr(shape).encode()).hexdigest()[:15], 16)


def cell_features(grid: Grid, number: int, shapes: Floats, guess: Floats, roof: Roof) -> Floats:
    """[S·A·B, F]: guess, group, category of the second axis, then the operation's own features."""
    blocks, inner = [], guess.shape[1]
    parts = grid.cells(shapes)
    for code, (operation, sizes) in enumerate(parts):
        seen = features(operation, sizes, roof)
        label = np.full((len(seen), 2), (number, code), np.float64)
        blocks.append(np.concatenate([label, seen], axis=1).reshape(len(shapes), inner // len(parts), -1))
    cells = np.concatenate(blocks, axis=1).reshape(len(shapes) * inner, -1)
    return np.concatenate([guess.reshape(-1, 1), cells], axis=1)


def _without_guess(seen: Floats) -> Floats:
    plain = seen.copy()
    plain[:, 0] = 0.0
    return plain


def fit_law(
    operation: str, grids: list[Grid], roof: Roof | None, *, seed: int = 0, threads: int = 2,
    progress: Callable[[str], None] | None = None, models: bool = True, rounds: int | None = None,
) -> OperationLaw:  # fmt: skip
    """Fit all candidates, choose by the error on shapes kept aside, and calibrate the bands there.

    `models`: also the law and band for models never measured. `rounds`: trees, None for the usual number.
    """
    say = progress or (lambda _: None)
    known_roof = roof or UNKNOWN_ROOF
    say(f"{operation}: surfaces of {len(grids)} groups")
    surfaces = [fit_surface(grid.coords, grid.ratio) for grid in grids]
    aside = [np.array([shape_number(tuple(s)) % _CALIBRATION == 0 for s in g.shapes.tolist()]) for g in grids]
    if sum(int(mask.sum()) for mask in aside) < 2:
        aside = [
            np.ones(len(grid.shapes), bool) for grid in grids
        ]  # so few shapes that each is judged by the others
    known = [np.isfinite(grid.ratio) for grid in grids]
    guesses = {
        "physical": [np.broadcast_to(s.mean, g.ratio.shape) for s, g in zip(surfaces, grids, strict=True)],
        "surface": [surface.left_out for surface in surfaces],
    }
    rows, shapes = sum(int(k.sum()) for k in known), sum(len(grid.shapes) for grid in grids)
    trees: Trees | None = None
    if rows >= FEW_ROWS and shapes >= FEW_SHAPES:
        say(f"{operation}: trees on {rows} rows")
        usual, leaves = _TREES.get(operation, (150, 63))
        pairs = enumerate(zip(grids, surfaces, strict=True))
        seen = [
            cell_features(grid, i, grid.shapes, surface.left_out, known_roof) for i, (grid, surface) in pairs
        ]
        use = [(k & ~m[:, None]).reshape(-1) for k, m in zip(known, aside, strict=True)]
        rest = [(g.ratio - s.left_out).reshape(-1) for g, s in zip(grids, surfaces, strict=True)]
        trees = fit_trees(
            np.concatenate([f[u] for f, u in zip(seen, use, strict=True)]),
            np.concatenate([r[u] for r, u in zip(rest, use, strict=True)]),
            rounds=rounds or usual, leaves=leaves, seed=seed, threads=threads,
        )  # fmt: skip
        guesses["trees"] = [s.left_out + trees.predict(f).reshape(g.ratio.shape)
                            for s, f, g in zip(surfaces, seen, grids, strict=True)]  # fmt: skip
    errors = {name: _score(guess, grids, known, aside) for name, guess in guesses.items()}
    chosen = min(errors, key=lambda name: errors[name])
    rest = [np.abs(g.ratio - guess) for g, guess in zip(grids, guesses[chosen], strict=True)]
    law = OperationLaw(operation, [], chosen, errors, trees if chosen == "trees" else None)
    scales = [_usual(error, len(grid.b)) for error, grid in zip(rest, grids, strict=True)]
    scores = [(error / scale)[m] for error, scale, m in zip(rest, scales, aside, strict=True)]
    pooled = conformal(np.concatenate([s[np.isfinite(s)] for s in scores]))
    for grid, surface, scale, score in zip(grids, surfaces, scales, scores, strict=True):
        own = score[np.isfinite(score)]
        law.groups.append(GroupLaw(grid, surface, scale, conformal(own) if len(own) >= 200 else pooled))
    if models and grids[0].axes.model and trees is not None:
        say(f"{operation}: models left out")
        _fit_new_models(law, known_roof, seed, threads)
    return law


def conformal(scores: Floats) -> float:
    """The ⌈(n + 1)·level⌉-th smallest score: at least `LEVEL` of new exchangeable scores lie below."""
    n = len(scores)
    if n == 0:
        return 3.0  # nothing to judge by: three times the usual error
    rank = min(int(np.ceil((n + 1) * LEVEL)), n)
    return float(np.partition(scores, rank - 1)[rank - 1])


def _score(guess: list[Floats], grids: list[Grid], known: list[Any], aside: list[Any]) -> float:
    """Median plus a fifth of the 90th percentile of |log error| on the shapes kept aside."""
    errors = np.concatenate(
        [np.abs(g.ratio - v)[k & m[:, None]] for g, v, k, m in zip(grids, guess, known, aside, strict=True)]
    )
    if not len(errors):
        return float("inf")
    return float(np.median(errors) + 0.2 * np.quantile(errors, 0.9))


def _usual(error: Floats, b: int) -> Floats:
    """Mean error of each point of the first axis over shapes and the second axis, smoothed over neighbours; [A·B]."""
    columns = error.reshape(len(error), -1, b)
    known = np.isfinite(columns)
    total, count = np.where(known, columns, 0.0).sum(axis=(0, 1)), known.sum(axis=(0, 1))
    smooth = _neighbours(total) / np.maximum(_neighbours(count.astype(np.float64)), 1e-9)
    overall = float(total.sum() / max(int(count.sum()), 1))
    smooth = np.maximum(np.where(smooth > 0, smooth, overall), max(0.25 * overall, 1e-4))
    return np.tile(smooth, error.shape[1] // b)


def _neighbours(values: Floats) -> Floats:
    """Each value twice, and its neighbours once."""
    padded = np.pad(values, 1)
    return np.asarray(padded[:-2] + 2.0 * padded[1:-1] + padded[2:])


def _fit_new_models(law: OperationLaw, roof: Roof, seed: int, threads: int) -> None:
    """Surfaces and trees for models never measured, and their band from models left out in four folds."""
    rng = np.random.default_rng(seed)
    names = law.groups[0].grid.axes.shape
    columns = [names.index(name) for name in law.groups[0].grid.axes.model]
    models = np.unique(np.concatenate([g.grid.shapes[:, columns] for g in law.groups]), axis=0)
    number = {tuple(model): i for i, model in enumerate(models.tolist())}
    fold_of = rng.permutation(len(models)) % 4
    seen, rest, plain, fold, scale = [], [], [], [], []
    for i, group in enumerate(law.groups):
        grid = group.grid
        model_of = np.array([number[tuple(row)] for row in grid.shapes[:, columns].tolist()])
        group.model_surface = surface = fit_surface(grid.coords, grid.ratio, model_of)
        known = np.isfinite(grid.ratio).reshape(-1)
        seen.append(cell_features(grid, i, grid.shapes, surface.left_out, roof)[known])
        rest.append((grid.ratio - surface.left_out).reshape(-1)[known])
        plain.append((grid.ratio - surface.mean).reshape(-1)[known])
        fold.append(np.repeat(fold_of[model_of], grid.ratio.shape[1])[known])
        group.model_scale = _usual(np.abs(grid.ratio - surface.left_out), len(grid.b))
        scale.append(np.tile(group.model_scale, len(grid.shapes))[known])
    X, y, y2 = np.concatenate(seen), np.concatenate(rest), np.concatenate(plain)
    folds, scales = np.concatenate(fold), np.concatenate(scale)

    def pair(where: NDArray[np.int64]) -> tuple[Trees, Trees]:
        use = rng.choice(where, min(_MOST_ROWS, len(where)), replace=False)
        return (fit_trees(X[use], y[use], rounds=80, leaves=31, seed=seed, threads=threads),
                fit_trees(_without_guess(X[use]), y2[use], rounds=80, leaves=31, seed=seed, threads=threads))  # fmt: skip

    scores = []
    for one in range(4):
        outside, inside = np.flatnonzero(folds != one), np.flatnonzero(folds == one)
        if not len(inside) or not len(outside):
            continue
        inside = rng.choice(inside, min(len(inside), 20_000), replace=False)
        first, second = pair(outside)
        error = (y[inside] - first.predict(X[inside])) / 2 + (
            y2[inside] - second.predict(_without_guess(X[inside]))
        ) / 2
        scores.append(np.abs(error) / scales[inside])
    law.model_band = conformal(np.concatenate(scores))
    law.model_trees, law.model_plain = pair(np.arange(len(X)))
