"""Models never measured: each predicted without any of its rows, by surfaces over the other models and a share of trees.

The surface leaves one model out in closed form. Trees see sizes and work alone, no surface and no twins, and are judged
in folds of models. Of the two the surface is the better where a kernel ran for many models, the trees where for few (they
learn from other kernels): per group the share with the least error on left-out models counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .bands import conformal, usual_error
from .features import cell_features
from .grids import Grid
from .roof import Roof
from .surface import Surface, fit_surface
from .trees import Trees, fit_trees
from .twins import twins

Floats = NDArray[np.float64]
SHARES = (0.0, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
_FOLDS = 6
_ROUNDS, _LEAVES = 120, 31
_MOST_ROWS = 60_000
"""Most rows that the trees are fitted on, drawn at random, for speed."""
_FEW = 8
"""Models below which groups choose their share together: too few to choose one each by."""


@dataclass(frozen=True)
class NewModels:
    """Per group: surface, usual error [A·B] and the trees' share; `guess` and `half` [S, A·B] of each model left out.

    `supported` [S]: whether the group's kernel ran for another model. `half` is the half width of the band in logarithms,
    from the errors of the other folds' models alone.
    """

    surfaces: list[Surface]
    scales: list[Floats]
    shares: list[float]
    trees: Trees
    band: float
    guess: list[Floats]
    half: list[Floats]
    supported: list[NDArray[np.bool_]]


def plain_features(seen: Floats, grid: Grid) -> Floats:
    """Features without what the surface and the twins say: both know other models' times."""
    plain = seen.copy()
    plain[:, 0] = 0.0
    if twins(grid, grid.shapes[:0], grid.ratio[:0]) is not None:
        plain[:, -2:] = 0.0
    return plain


def fit_new_models(grids: list[Grid], roof: Roof, seed: int = 0, threads: int = 2) -> NewModels:
    """Fit, and predict every model without any of its rows. Lengths and shares are chosen over all models at once."""
    rng = np.random.default_rng(seed)
    axes = grids[0].axes
    columns = [axes.shape.index(name) for name in axes.model]
    models = np.unique(np.concatenate([g.shapes[:, columns] for g in grids]), axis=0)
    number = {tuple(model): i for i, model in enumerate(models.tolist())}
    of = [np.array([number[tuple(row)] for row in g.shapes[:, columns].tolist()]) for g in grids]
    fold_of = rng.permutation(len(models)) % _FOLDS
    surfaces = [fit_surface(g.coords, g.ratio, model) for g, model in zip(grids, of, strict=True)]
    known = [np.isfinite(g.ratio) for g in grids]
    # a guess of 0 is as good as any: plain features leave it out
    seen = [
        plain_features(cell_features(g, i, g.shapes, np.zeros_like(g.ratio), roof), g)
        for i, g in enumerate(grids)
    ]
    X = np.concatenate([f[k.reshape(-1)] for f, k in zip(seen, known, strict=True)])
    y = np.concatenate([(g.ratio - s.mean)[k] for g, s, k in zip(grids, surfaces, known, strict=True)])
    fold = np.concatenate(
        [np.repeat(fold_of[model], k.sum(axis=1)) for model, k in zip(of, known, strict=True)]
    )

    def fitted(where: NDArray[np.int64]) -> Trees:
        use = rng.choice(where, min(_MOST_ROWS, len(where)), replace=False)
        return fit_trees(X[use], y[use], rounds=_ROUNDS, leaves=_LEAVES, seed=seed, threads=threads)

    plain = [np.zeros(g.ratio.shape) for g in grids]
    for one in range(_FOLDS):
        outside = np.flatnonzero(fold != one)
        if not len(outside) or len(outside) == len(fold):
            continue
        part = fitted(outside)
        for i, (grid, surface) in enumerate(zip(grids, surfaces, strict=True)):
            inside = np.flatnonzero(fold_of[of[i]] == one)
            cells = seen[i].reshape(len(grid.shapes), -1, X.shape[1])[inside].reshape(-1, X.shape[1])
            plain[i][inside] = surface.mean + part.predict(cells).reshape(len(inside), grid.ratio.shape[1])
    shares = _shares(grids, [s.left_out for s in surfaces], plain, [len(np.unique(m)) for m in of])
    guess = [s.left_out + w * (p - s.left_out) for s, w, p in zip(surfaces, shares, plain, strict=True)]
    errors = [np.abs(g.ratio - v) for g, v in zip(grids, guess, strict=True)]
    scales = [usual_error(error, len(g.b)) for error, g in zip(errors, grids, strict=True)]
    scores = np.concatenate([(e / s)[k] for e, s, k in zip(errors, scales, known, strict=True)])
    bands = np.array([conformal(scores[fold != one]) for one in range(_FOLDS)])
    half = [bands[fold_of[model]][:, None] * scale[None] for model, scale in zip(of, scales, strict=True)]
    supported = [np.full(len(model), len(np.unique(model)) > 1) for model in of]
    return NewModels(
        surfaces, scales, shares, fitted(np.arange(len(X))), conformal(scores), guess, half, supported
    )


def _shares(grids: list[Grid], surface: list[Floats], plain: list[Floats], models: list[int]) -> list[float]:
    """Per group the share of `plain` with the least error: each its own, those with few models a common one."""

    def best(chosen: list[int]) -> float:
        found = []
        for share in SHARES:
            wrong = np.concatenate(
                [
                    np.abs(grids[i].ratio - surface[i] - share * (plain[i] - surface[i])).reshape(-1)
                    for i in chosen
                ]
            )
            wrong = wrong[np.isfinite(wrong)]
            found.append(float(np.median(wrong) + 0.2 * np.quantile(wrong, 0.9)))
        return SHARES[int(np.argmin(found))]

    few = [i for i, count in enumerate(models) if count < _FEW]
    common = best(few) if few else 0.0
    return [common if count < _FEW else best([i]) for i, count in enumerate(models)]
