"""A random router whose loads, and whose agreement with itself a moment later, can be asked for.

Every expert has a score: a fixed bias plus a standard normal. The K highest are chosen. Two choices whose normals
have correlation c agree in a share of their experts that grows from chance (c = 0) to 1 (c = 1), and whatever c is,
each of them has the same loads. So one curve, agreement against c, serves three questions: the next token (reuse),
the next layer (cross-layer correlation), and what the gate says ahead of time (guess recall).

Everything here is in ranks: rank 0 is the most used expert of a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError

HIGHEST_LOAD = 0.98  # an expert that every token used would have an infinite bias
PILOT_VALUES = 1 << 20
TURNS = 40


@dataclass(frozen=True, slots=True, eq=False)
class Router:
    """Biases by rank, and the curve from the angle between two draws to the share of experts they have in common."""

    top_k: int
    load_N: NDArray[np.float64]
    """Probability that a token uses the expert of this rank; adds up to `top_k`."""
    bias_N: NDArray[np.float32]
    angle: NDArray[np.float64]
    """From 0 (the same draw) to π/2 (independent); the correlation is its cosine."""
    agreement: NDArray[np.float64]

    @property
    def chance(self) -> float:
        """Agreement of two independent tokens: Σ load² / K, which is K / N where all loads are equal."""
        return float((self.load_N**2).sum() / self.top_k)

    def correlation_for(self, name: str, agreement: float) -> float:
        """The correlation at which two draws agree in this share; `UsageError` naming the range that is possible."""
        if not self.chance - 0.005 <= agreement <= 1:
            raise UsageError(
                f"{name} must be between {self.chance:.4f} (chance, with these loads) and 1, got {agreement}"
            )
        return float(np.cos(np.interp(-agreement, -self.agreement, self.angle)))


def make_router(num_experts: int, top_k: int, skew: float, rng: np.random.Generator) -> Router:
    """A router whose loads fall as rank^−skew (0: all equal), each at most `HIGHEST_LOAD`."""
    load = loads(num_experts, top_k, skew)
    rows = max(1024, PILOT_VALUES // num_experts)
    bias = np.zeros(num_experts) if skew == 0 else _fit_biases(load, top_k, rows, rng)
    base = rng.standard_normal((rows, num_experts))
    other = rng.standard_normal((rows, num_experts))
    chosen = _chosen(base + bias, top_k)
    angle = np.linspace(0, np.pi / 2, 33)
    agreement = [
        float((chosen & _chosen(np.cos(a) * base + np.sin(a) * other + bias, top_k)).sum() / (rows * top_k))
        for a in angle
    ]
    agreement[-1] = float((load**2).sum() / top_k)
    # The pilot's noise may not make the curve turn: it is read backwards.
    curve = np.minimum.accumulate(np.maximum(agreement, agreement[-1]))
    return Router(top_k, load, bias.astype(np.float32), angle, curve)


def loads(num_experts: int, top_k: int, skew: float) -> NDArray[np.float64]:
    """min(`HIGHEST_LOAD`, c · rank^−skew) for the c at which they add up to `top_k`."""
    if top_k == num_experts:
        return np.ones(num_experts)
    wish = np.asarray(np.arange(1, num_experts + 1, dtype=np.float64) ** -skew)
    for capped in range(num_experts):
        rest = top_k - HIGHEST_LOAD * capped
        load = np.asarray(wish * (rest / wish[capped:].sum()))
        if load[capped] <= HIGHEST_LOAD:
            load[:capped] = HIGHEST_LOAD
            return load
        if rest - HIGHEST_LOAD <= 0:
            break
    return np.full(num_experts, top_k / num_experts)  # K so near N that all are nearly always used


def _fit_biases(
    load: NDArray[np.float64], top_k: int, rows: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Biases that give these loads: a start from one fixed threshold, then corrections that get smaller."""
    normal = NormalDist()

    def distance(share: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.array([normal.inv_cdf(p) for p in np.clip(share, 0.5 / rows, 1 - 0.5 / rows)])

    aim = distance(load)
    bias = aim.copy()
    for turn in range(TURNS):
        found = _chosen(rng.standard_normal((rows, load.size)) + bias, top_k).mean(axis=0)
        bias += (aim - distance(found)) / max(1.0, (turn - 4) / 2)
    return np.asarray(bias - bias.mean())


def _chosen(scores: NDArray[np.float64], top_k: int) -> NDArray[np.bool_]:
    """Which experts of each row are among its `top_k` highest."""
    if top_k == scores.shape[-1]:
        return np.ones(scores.shape, bool)
    threshold = np.partition(scores, scores.shape[-1] - top_k, axis=-1)[..., -top_k]
    return np.asarray(scores >= threshold[..., None])


def best(scores: NDArray[np.float32], count: int) -> NDArray[np.int64]:
    """Ranks of the `count` highest scores along the last axis, best first."""
    top = np.argpartition(scores, scores.shape[-1] - count, axis=-1)[..., -count:]
    order = np.argsort(-np.take_along_axis(scores, top, axis=-1), axis=-1, kind="stable")
    return np.take_along_axis(top, order, axis=-1)
