"""One unit for a whole column or axis, so that its numbers can be compared; single values as text.

`workbench/units.py` chooses a prefix for one value; a column needs one for all of its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..workbench.units import format_bytes, format_rate, format_seconds

UNKNOWN = "unknown"


class Unit(NamedTuple):
    """How to show a quantity: shown number = value × `factor`, followed by `name`."""

    name: str
    factor: float
    digits: int = 4
    """Significant digits; all digits before the point are always shown."""

    def show(self, value: float) -> str:
        return significant(value * self.factor if self.factor != 1 else value, self.digits)

    def aligned(self, values: Iterable[float]) -> Callable[[float], str]:
        """How to show the numbers of one column: all with the decimals that suit the largest.

        A number that these decimals would round to 0 is shown with significant digits instead.
        """
        shown = [value * self.factor for value in values]
        largest = max((abs(value) for value in shown), default=0.0)
        if not largest or all(float(value).is_integer() for value in shown):
            return self.show
        decimals = max(self.digits - 1 - math.floor(math.log10(largest)), 0)

        def show(value: float) -> str:
            text = f"{value * self.factor:,.{decimals}f}"
            return text if float(text.replace(",", "")) or not value else self.show(value)

        return show

    def titled(self, title: str) -> str:
        return f"{title} ({self.name})" if self.name else title


PERCENT = Unit("%", 100.0)
COUNT = Unit("", 1.0)
_BYTES = (Unit("B", 1.0), Unit("kB", 1e-3), Unit("MB", 1e-6), Unit("GB", 1e-9), Unit("TB", 1e-12))
_SECONDS = (Unit("ns", 1e9), Unit("µs", 1e6), Unit("ms", 1e3), Unit("s", 1.0))


def bytes_unit(values: Iterable[float]) -> Unit:
    """The decimal unit (GB is 10⁹ bytes) in which the largest value is at least 1 and below 1000."""
    return _unit(_BYTES, values)


def seconds_unit(values: Iterable[float]) -> Unit:
    """ns, µs, ms or s: the unit in which the largest value stays below 1000, s where none does."""
    return _unit(_SECONDS, values)


def _unit(units: tuple[Unit, ...], values: Iterable[float]) -> Unit:
    largest = max((abs(value) for value in values), default=0.0)
    return next((unit for unit in units if largest * unit.factor < 999.95), units[-1])


def significant(value: float, digits: int = 4) -> str:
    """`value` with that many significant digits, thousands set off by commas; whole numbers in full."""
    if not math.isfinite(value):
        return UNKNOWN
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -4 or magnitude >= 15:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(digits - 1 - magnitude, 0)}f}"


def ranges(numbers: Iterable[int]) -> str:
    """Integers with runs joined: 3, 4, 5, 9 → "3–5, 9". The order given is kept."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}–{last}" for first, last in runs)


def named_value(name: str, value: Any) -> str:
    """A value as text, in the unit that its name's ending says (`_s`, `_bytes`, …); None is "unknown"."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {named_value(str(key), item)}" for key, item in value.items()) or "none"
    if isinstance(value, (list, tuple)):
        return _listed(name, value)
    if not isinstance(value, (int, float)):
        return str(value)
    return _number(name, value)


def _listed(name: str, values: list[Any] | tuple[Any, ...]) -> str:
    if len(values) > 2 and all(type(item) is int for item in values):
        return ranges(values)
    return ", ".join(named_value(name, item) for item in values) or "none"


def _number(name: str, value: float) -> str:
    if not math.isfinite(value):
        return UNKNOWN
    if name.endswith(("bytes_per_s", "bandwidth")):
        return format_rate(value)
    if name.endswith(("bytes", "bytes_per_token", "bytes_per_output_token")):
        return format_bytes(value)
    if name.endswith("_ns"):
        return format_seconds(value * 1e-9)
    if name.endswith(("_s", "seconds")) and not name.endswith("_per_s"):
        return format_seconds(value)
    if name.endswith(("_frac", "_share", "_rate", "share_above_1")) and 0 <= value <= 1:
        return f"{significant(100 * value)} %"
    return significant(value)
