"""The weighted sum of experts' outputs back into their tokens."""

from __future__ import annotations

from typing import Any

import numba

from .compiled import load, parallel

Array = Any


@parallel
def add_weighted_rows(
    rows_PW: Array, is_there_P: Array, weights_P: Array, places_TK: Array, y_TW: Array
) -> None:
    """y[t] += Σ over k of weight · row of the token's k-th choice, where that row is there."""
    for t in numba.prange(y_TW.shape[0]):
        for k in range(places_TK.shape[1]):
            p = places_TK[t, k]
            if is_there_P[p]:
                weight = weights_P[p]
                for i in range(y_TW.shape[1]):
                    y_TW[t, i] += weight * load(rows_PW[p, i])
