"""Between the measured points of one shape: on which scale, chosen by the error at points left out (case B22)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..compiled import compiled

Floats = NDArray[np.float64]
SCALES = ("ratio over log size", "seconds over size", "log seconds over log size")
"""Index = the code that `cells_between` takes."""


def scale_errors(ratio: Floats, log_base: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Error at each interior point from its two neighbours alone: (median |log error| [3], the chosen scale's errors).

    ratio, log_base: [S, A, B] of log(time / physical form) and log of the physical form.
    """
    if len(b) < 3:
        return np.full(3, np.nan), np.zeros(0)
    log_b, seconds = np.log2(np.maximum(b, 1e-9)), np.exp(ratio + log_base)
    found = []
    for scale in range(3):
        axis = b if scale == 1 else log_b
        share = (axis[1:-1] - axis[:-2]) / (axis[2:] - axis[:-2])
        values = (ratio, seconds, ratio + log_base)[scale]
        guess = values[..., :-2] * (1.0 - share) + values[..., 2:] * share
        if scale == 1:
            guess = np.log(guess)
        elif scale == 0:
            guess = guess + log_base[..., 1:-1]
        error = np.abs(guess - (ratio + log_base)[..., 1:-1])
        found.append(error[np.isfinite(error)])
    medians = np.array([np.median(e) if len(e) else np.nan for e in found])
    return medians, found[int(np.nanargmin(medians))] if np.isfinite(medians).any() else np.zeros(0)


@compiled
def cells_between(
    table: Any, a: Any, b: Any, ratio: Any, log_seconds: Any, half: Any, kind: Any, a_axis: Any, b_axis: Any,
    by_name: Any, scale: Any, log_base: Any, out: Any, half_out: Any, kind_out: Any,
) -> None:  # fmt: skip
    """Per row: log seconds, half width of the band (log), and kind (0 measured, 1 interpolated, 2 extrapolated).

    table [R]: which table; a, b [R]: where (in their own unit, or the number of a category); the axes in log2; ratio,
    log_seconds, half, kind [tables, A, B]. Beyond the axis the last ratio to the physical form is kept, and the band
    doubles.
    """
    for row in range(b.shape[0]):
        t = table[row]
        low_a, share_a, beyond = 0, 0.0, False
        if a_axis.shape[0] > 1:
            if by_name:
                low_a = int(a[row])
            else:
                low_a, share_a, beyond = _place(np.log2(max(a[row], 1e-9)), a_axis)
        elif not by_name and abs(np.log2(max(a[row], 1e-9)) - a_axis[0]) > 1e-9:
            beyond = True
        low_b, share_b, outside = _place(np.log2(max(b[row], 1e-9)), b_axis)
        use = scale
        if beyond or outside:
            use = 0
        elif use == 1 and share_b > 0.0:
            first, second = 2.0 ** b_axis[low_b], 2.0 ** b_axis[low_b + 1]
            share_b = (b[row] - first) / (second - first)
        total, width, worst = 0.0, 0.0, 0
        for i in range(2):
            for j in range(2):
                weight = (share_a if i else 1.0 - share_a) * (share_b if j else 1.0 - share_b)
                if weight > 0.0:
                    x, y = low_a + i, low_b + j
                    if use == 0:
                        total += weight * ratio[t, x, y]
                    elif use == 1:
                        total += weight * np.exp(log_seconds[t, x, y])
                    else:
                        total += weight * log_seconds[t, x, y]
                    width = max(width, half[t, x, y])
                    worst = max(worst, kind[t, x, y])
        if share_a > 0.0 or share_b > 0.0:
            worst = max(worst, 1)
        if use == 0:
            total += log_base[row]
        elif use == 1:
            total = np.log(total)
        if beyond or outside:
            worst, width = 2, 2.0 * width
        out[row], half_out[row], kind_out[row] = total, width, worst


@compiled
def _place(x: Any, axis: Any) -> Any:
    """(index of the point below, share of the way to the next, whether x lies outside the axis)."""
    last = axis.shape[0] - 1
    if x < axis[0] - 1e-9:
        return 0, 0.0, True
    if x > axis[last] + 1e-9:
        return last, 0.0, True
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if axis[middle] <= x + 1e-12:
            low = middle
        else:
            high = middle
    if low < last and abs(axis[low + 1] - x) <= 1e-9:
        return low + 1, 0.0, False
    if last == 0 or abs(axis[low] - x) <= 1e-9:
        return low, 0.0, False
    return low, (x - axis[low]) / (axis[low + 1] - axis[low]), False
