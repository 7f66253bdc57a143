"""Logarithmic axes: where the ticks stand and what is written at them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

_PREFIXES = (
    (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"),
)  # fmt: skip
_TOO_LONG = (2, 5, 10, 20, 50, 100, 200, 400, 900, 1900, 4900, 9900)
_TOO_SHORT = (2, 5, 10, 20, 30, 50, 70, 80, 90, 95, 98, 99)
"""Errors worth a tick, in per cent of the measured time."""


class Axis(NamedTuple):
    """A logarithmic axis: its ends, and its ticks with their texts, all in the values' own unit."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def layout(self, title: str) -> dict[str, Any]:
        return {
            "type": "log",
            "title": {"text": title, "standoff": 8},
            "tickangle": 0,
            "range": [math.log10(self.low), math.log10(self.high)],
            "tickvals": [value for value, _ in self.ticks],
            "ticktext": [text for _, text in self.ticks],
        }


def decades(values: Iterable[float], text: Callable[[float], str], most: int = 7) -> Axis:
    """An axis around positive values, with ticks at round numbers, at most about `most` of them."""
    known = [value for value in values if value > 0 and math.isfinite(value)]
    low, high = min(known, default=1.0), max(known, default=1.0)
    low, high = low / max((high / low) ** 0.05, 1.3), high * max((high / low) ** 0.05, 1.3)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks: list[float] = []
    for steps in ((1, 2, 5), (1, 3), (1,)):
        ticks = [s * 10.0**d for d in range(first, last + 1) for s in steps if low <= s * 10.0**d <= high]
        if len(ticks) <= most:
            break
    stride = max(1, math.ceil(len(ticks) / most))
    return Axis(low, high, tuple((tick, text(tick)) for tick in ticks[::stride]))


def errors(ratios: Iterable[float], most: int = 11) -> Axis:
    """An axis for guess ÷ measured, symmetric around 1, with per cent at the ticks: twice as long is +100 %, half −50 %."""
    known = [abs(math.log(ratio)) for ratio in ratios if ratio > 0 and math.isfinite(ratio)]
    reach = max(1.12 * max(known, default=0.0), math.log(1.1))
    longer = _apart([(1 + step / 100, f"+{step} %") for step in _TOO_LONG], reach, 2 * reach / most)
    shorter = _apart([(1 - step / 100, f"−{step} %") for step in _TOO_SHORT], reach, 2 * reach / most)
    return Axis(math.exp(-reach), math.exp(reach), (*reversed(shorter), (1.0, "0 %"), *longer))


def _apart(ticks: Iterable[tuple[float, str]], reach: float, least_gap: float) -> list[tuple[float, str]]:
    """Those within reach of 1 that stand apart from it and from each other; `ticks` lead away from 1."""
    kept: list[tuple[float, str]] = []
    for value, text in ticks:
        place, last = abs(math.log(value)), abs(math.log(kept[-1][0])) if kept else 0.0
        if place <= reach and place - last >= least_gap:
            kept.append((value, text))
    return kept


def prefixed(unit: str) -> Callable[[float], str]:
    """Numbers with a decimal prefix before `unit`: `10 MFLOP`, `2 TB/s`, `50 µs`. At most three digits."""

    def text(value: float) -> str:
        factor, prefix = next((p for p in _PREFIXES if abs(value) >= 0.9995 * p[0]), _PREFIXES[-1])
        return f"{float(f'{value / factor:.3g}'):g} {prefix}{unit}".rstrip()

    return text
