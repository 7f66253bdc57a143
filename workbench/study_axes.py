"""The values of a study's axes, and the four ways to go through them: grid, list, random, Sobol. All of them stream."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ..errors import UsageError

_CHUNK = 1024  # a power of two, which keeps Sobol points balanced from block to block


class Range(BaseModel):
    """An interval to draw from, or to lay `steps` values over."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    low: float = Field(allow_inf_nan=False)
    high: float = Field(allow_inf_nan=False)
    log: bool = False
    whole: bool = False
    steps: int | None = Field(default=None, ge=2, le=100_000)
    unit: str = ""
    """Put behind the number, as in "5%" and "2GiB": the value becomes a text."""

    @model_validator(mode="after")
    def _ordered(self) -> Range:
        if not self.low < self.high:
            raise ValueError(f"low must be below high, got {self.low:g} and {self.high:g}")
        if self.log and self.low <= 0:
            raise ValueError(f"a logarithmic range must begin above 0, got low = {self.low:g}")
        return self

    def at(self, u: float) -> Any:
        """The value at the share u (0 to 1) of the way from low to high."""
        if self.log:
            value = math.exp(math.log(self.low) + u * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + u * (self.high - self.low)
        number: int | float = round(value) if self.whole else float(f"{value:.6g}")
        return f"{number:.6g}{self.unit}" if self.unit else number

    def values(self) -> list[Any]:
        if self.steps is None:
            raise UsageError("a range in a grid needs steps: how many values to lay over it")
        return [self.at(step / (self.steps - 1)) for step in range(self.steps)]


Axis = list[Any] | Range


def grid_size(axes: Mapping[str, Axis]) -> int:
    return math.prod(axis.steps or 0 if isinstance(axis, Range) else len(axis) for axis in axes.values())


def grid(axes: Mapping[str, Axis]) -> Iterator[dict[str, Any]]:
    """Every combination; the last axis turns fastest."""
    values = [axis.values() if isinstance(axis, Range) else axis for axis in axes.values()]
    for combination in itertools.product(*values):
        yield dict(zip(axes, combination, strict=True))


def drawn(axes: Mapping[str, Axis], samples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Independent draws, each axis uniform over its values (over the logarithm where asked)."""
    rng = np.random.default_rng(seed)
    for first in range(0, samples, _CHUNK):
        yield from _placed(axes, rng.random((min(_CHUNK, samples - first), len(axes))).tolist())


def sobol(axes: Mapping[str, Axis], samples: int, seed: int) -> Iterator[dict[str, Any]]:
    """Scrambled Sobol points: they fill the space evenly, best with a power of two of them."""
    import warnings

    from scipy.stats import qmc

    sampler = qmc.Sobol(len(axes), scramble=True, rng=np.random.default_rng(seed))
    for first in range(0, samples, _CHUNK):
        with warnings.catch_warnings():  # that the count is no power of two is the user's choice
            warnings.simplefilter("ignore", UserWarning)
            points = sampler.random(min(_CHUNK, samples - first))
        yield from _placed(axes, points.tolist())


def _placed(axes: Mapping[str, Axis], shares: Sequence[Sequence[float]]) -> Iterator[dict[str, Any]]:
    for row in shares:
        yield {
            name: axis.at(u) if isinstance(axis, Range) else axis[min(int(u * len(axis)), len(axis) - 1)]
            for (name, axis), u in zip(axes.items(), row, strict=True)
        }
