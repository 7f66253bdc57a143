"""The measures of an exploration as people read them: a title, one unit for all designs, a value with its band."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..workbench.explore import ExploreResult
from ..workbench.explore_answer import COLUMNS
from ..workbench.explore_lines import value_text
from .scales import COUNT, Unit, seconds_unit

Floats = NDArray[np.float64]
_BILLION = Unit("10⁹", 1e-9)
_UNITS = {
    "throughput": Unit("tokens/s a device", 1.0), "memory": Unit("GiB", 2.0**-30), "total_params": _BILLION,
    "active_params": _BILLION, "flops": Unit("GFLOP", 1e-9), "loss": COUNT, "leverage": Unit("×", 1.0),
}  # fmt: skip
_TITLES = {
    "latency": "latency", "throughput": "throughput", "memory": "memory", "total_params": "parameters in all",
    "active_params": "parameters a token uses", "flops": "FLOPs a token", "loss": "loss", "leverage": "leverage",
}  # fmt: skip


class Measure(NamedTuple):
    """A measure as the study spells it (`latency:bulk`), and how to show it."""

    name: str
    title: str
    """`latency at bulk`, without the unit."""
    unit: Unit
    small_is_good: bool

    @property
    def axis(self) -> str:
        return self.unit.titled(self.title)

    @property
    def best(self) -> str:
        return f"{'lowest' if self.small_is_good else 'highest'} {self.title}"


class Value(NamedTuple):
    """A measure of one design; None is unknown. The band is None where there is none."""

    measure: Measure
    value: float | None
    low: float | None
    high: float | None
    change: float | None
    """Against the base, as a share."""

    @property
    def text(self) -> str:
        return value_text(self.measure.name, math.nan if self.value is None else self.value)

    @property
    def band(self) -> str:
        """`4.02 ms to 5.63 ms`, or nothing."""
        return band_text(self.measure.name, self.low, self.high)

    @property
    def against(self) -> str:
        """`−12 %`, or nothing."""
        return change_text(self.change)


def band_text(measure: str, low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return ""
    return f"{value_text(measure, low)} to {value_text(measure, high)}"


def change_text(change: float | None, digits: int = 1) -> str:
    """A share as a change in per cent, with the true minus sign; nothing for what is unknown."""
    if change is None:
        return ""
    text = f"{100 * abs(change):.{digits}f}"
    if not float(text):
        return "±0 %" if change == 0 else f"less than {10.0**-digits:g} %"
    return f"{'−' if change < 0 else '+'}{text} %"


def measures_of(result: ExploreResult, machine: str) -> tuple[Measure, ...]:
    """The study's measures in its order. The unit suits the values of all designs on that machine."""
    found = []
    for name, small in result.study.measures():
        kind, _, of = name.partition(":")
        title = _TITLES[kind]
        if of:
            title += f" {'by' if kind in ('loss', 'leverage') else 'at'} {of}"
        unit = _UNITS.get(kind) or _seconds_of(column(result, machine, name))
        found.append(Measure(name, title, unit, small))
    return tuple(found)


def _seconds_of(values: Floats) -> Unit:
    """Of the middle design: the slowest ones are not what is looked at."""
    there = values[np.isfinite(values)]
    return seconds_unit([float(np.median(there))] if len(there) else [])


def column(result: ExploreResult, machine: str, measure: str) -> Floats:
    """[R] of all designs; NaN is unknown."""
    name, costs = COLUMNS.get(measure, measure), result.costs[machine]
    return np.asarray((costs if name in costs else result.designs)[name], np.float64)


def edges(result: ExploreResult, machine: str, measure: str) -> tuple[Floats, Floats]:
    """[R] of both ends of the band; NaN where a measure or a value has none (all of a hardware sheet's)."""
    kind, _, point = measure.partition(":")
    values, costs = column(result, machine, measure), result.costs[machine]
    if kind != "latency":
        return np.full(len(values), np.nan), np.full(len(values), np.nan)
    low, high = (np.asarray(costs[f"latency_{edge}:{point}"], np.float64) for edge in ("low", "high"))
    there = high > low
    return np.where(there, low, np.nan), np.where(there, high, np.nan)


def known(values: Iterable[Any]) -> list[float | None]:
    """Numbers as Python's; NaN is None."""
    return [float(value) if np.isfinite(value) else None for value in values]
