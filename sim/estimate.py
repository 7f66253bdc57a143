"""A time with its band and how it is known: what a sheet and a profile both answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

HOW = ("measured grid", "interpolated", "extrapolated", "roofline")
EXTRAPOLATED = HOW.index("extrapolated")
ROOFLINE = HOW.index("roofline")


@dataclass(frozen=True, slots=True)
class Estimate:
    """Seconds with a 90 % band, and how each is known (an index of `HOW`). All [R], or one number each for one shape.

    A roofline has no band: `low` and `high` are then the seconds themselves, a floor.
    """

    seconds: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    how: NDArray[np.int8]

    @property
    def words(self) -> list[str]:
        return [HOW[int(code)] for code in np.atleast_1d(self.how)]

    @classmethod
    def floor(cls, seconds: NDArray[np.float64]) -> Estimate:
        """From a sheet alone."""
        return cls(seconds, seconds, seconds, np.full(seconds.shape, ROOFLINE, np.int8))
