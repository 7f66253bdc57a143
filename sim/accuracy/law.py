"""A published scaling law as an object: formula, coefficients, where it was fitted; it refuses everywhere else.

An estimate outside the fitted range is not a worse estimate but none: its value is NaN and its reason names the input,
its value and the range. What was the same in every fitted run and stands in no formula (full-size experts, say) is
`held`: a design that departs from it keeps its estimate, and the departure is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .inputs import AccuracyInputs, FloatArray

NOT_LATENT = "not fitted on a latent bottleneck"
OWN_DATA = "a loss holds for its paper's data and tokenizer: compare designs under one law, never across laws"
_ROUNDING = 1e-9
"""Relative. A value computed to lie on an end of a range lies in it."""

Values = Mapping[str, FloatArray]
Coefficients = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class LawInput:
    """One quantity of a law: what it is exactly, how it is read from designs, and between what it was fitted."""

    name: str
    unit: str
    low: float
    high: float
    meaning: str
    """The paper's definition, embeddings in or out; where the range stands."""
    read: Callable[[AccuracyInputs], FloatArray]

    @property
    def range_text(self) -> str:
        ends = f"{self.low:.4g} to {self.high:.4g}" if self.high > self.low else f"{self.low:.4g}"
        return f"{ends} {self.unit}".strip()

    def outside(self, values: FloatArray) -> NDArray[np.bool_]:
        """[R] which values lie outside; NaN does."""
        inside: NDArray[np.bool_] = (values >= self.low * (1 - _ROUNDING)) & (
            values <= self.high * (1 + _ROUNDING)
        )
        return ~inside


@dataclass(frozen=True, eq=False)
class AccuracyLaw:
    """A law as published. `inputs` have ranges that refuse, `held` has what every fitted run had in common."""

    name: str
    paper: str
    arxiv: str
    where: str
    """Equation and table in the paper."""
    formula: str
    coefficients: Coefficients
    predicts: str
    """What a value is, and on which data."""
    unit: Literal["nats per token", "times dense compute"]
    better: Literal["lower", "higher"]
    inputs: tuple[LawInput, ...]
    compute: Callable[[Coefficients, Values], FloatArray]
    held: tuple[LawInput, ...] = ()
    residual_rmse: float | None = None
    """Root mean square error of the fit in `unit` where the paper states it: smaller differences say nothing."""
    notes: tuple[str, ...] = ()

    @property
    def source(self) -> str:
        return f"{self.paper}, arXiv {self.arxiv}, {self.where}"

    @property
    def caveats(self) -> tuple[str, ...]:
        """What must stand beside every estimate."""
        return (NOT_LATENT, *((OWN_DATA,) if self.unit == "nats per token" else ()), *self.notes)

    def unchecked(self, **values: ArrayLike) -> FloatArray:
        """The bare formula for named inputs, no range checked: to compare it with what its paper prints."""
        return self.compute(
            self.coefficients, {name: np.asarray(value, np.float64) for name, value in values.items()}
        )

    def estimate(self, inputs: AccuracyInputs) -> Estimates:
        """Estimates for R designs at once, NaN and a reason where any input is outside its fitted range."""
        values = {one.name: one.read(inputs) for one in (*self.inputs, *self.held)}
        outside = {one.name: one.outside(values[one.name]) for one in self.inputs}
        departs = {one.name: one.outside(values[one.name]) for one in self.held}
        refused = np.any(list(outside.values()), axis=0)
        with np.errstate(all="ignore"):  # rows that are refused may overflow; they become NaN below
            raw = self.compute(self.coefficients, values)
        return Estimates(self, np.where(refused, np.nan, raw), values, outside, departs)

    def to_dict(self) -> dict[str, object]:
        """Everything a reader needs to judge an estimate."""
        return {
            "name": self.name,
            "source": self.source,
            "formula": self.formula,
            "coefficients": dict(self.coefficients),
            "predicts": self.predicts,
            "unit": self.unit,
            "better": self.better,
            "fitted_range": [_described(one) for one in self.inputs],
            "held_fixed": [_described(one) for one in self.held],
            "residual_rmse": self.residual_rmse,
            "caveats": list(self.caveats),
        }


@dataclass(frozen=True, eq=False)
class Estimates:
    """One law's answers for R designs."""

    law: AccuracyLaw
    value: FloatArray
    """[R] in `law.unit`; NaN where the law refuses."""
    values: Values
    """Of each input and each held quantity, [R]."""
    outside: Mapping[str, NDArray[np.bool_]]
    """Of each input, [R]: outside its fitted range."""
    departs: Mapping[str, NDArray[np.bool_]]
    """Of each held quantity, [R]: other than in the fitted runs."""

    def __len__(self) -> int:
        return len(self.value)

    @property
    def refused(self) -> NDArray[np.bool_]:
        """[R] which designs get no estimate."""
        return np.isnan(self.value)

    def reason(self, row: int) -> str | None:
        """Why that design gets no estimate: every input that is outside, its value, its range. None where it gets one."""
        found = [
            f"{one.name} = {self.values[one.name][row]:.4g} is outside the fitted {one.range_text}"
            for one in self.law.inputs
            if self.outside[one.name][row]
        ]
        return f"{self.law.name} refuses: " + "; ".join(found) if found else None

    def departure(self, row: int) -> str | None:
        """In what that design differs from all fitted runs though no formula sees it. None where in nothing."""
        found = [
            f"{one.name} = {self.values[one.name][row]:.4g} where every fitted run had {one.range_text}"
            for one in self.law.held
            if self.departs[one.name][row]
        ]
        return f"{self.law.name}: " + "; ".join(found) if found else None

    def refusals(self) -> dict[str, int]:
        """How many designs each input refuses, most first. A design that several refuse counts in each."""
        counts = {name: int(mask.sum()) for name, mask in self.outside.items() if mask.any()}
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _described(one: LawInput) -> dict[str, object]:
    return {"name": one.name, "low": one.low, "high": one.high, "unit": one.unit, "meaning": one.meaning}
