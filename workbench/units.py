"""Quantities as people write and read them: sizes in, text out. The only place where a unit prefix is chosen.

GB is 10⁹ bytes and GiB is 2³⁰. Unknown (None or NaN) prints as "–", never as 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from ..errors import UsageError

UNKNOWN = "–"

_BYTES_PER = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z%]*)")
_RIGHT = "write a share (5%), bytes with their unit (2GiB, 500MB), a count of experts (64), or auto"

CapacityKind = Literal["share", "bytes", "experts", "auto"]


@dataclass(frozen=True, slots=True)
class Capacity:
    """How large a cache is meant to be, as asked for; a trace and a model turn it into experts."""

    label: str
    """As the user wrote it, without spaces: `5%`, `2GiB`, `64`, `auto`."""
    kind: CapacityKind
    value: Fraction | None
    """A share of all routed experts (0.05), whole bytes, whole experts; None for auto. Exact, so that
    flooring to whole experts never suffers from binary fractions (29 % of 100 is 29, not 28)."""


def parse_capacity(text: str) -> Capacity:
    """The capacity that `text` names. Raises `UsageError` that says what would be right."""
    label = "".join(text.split())
    if label.lower() == "auto":
        return Capacity("auto", "auto", None)
    match = _NUMBER.fullmatch(label)
    if match is None:
        raise UsageError(f"capacity {text!r} is not understood; {_RIGHT}")
    number, unit = Fraction(match[1]), match[2].lower()
    if unit == "%":
        return Capacity(label, "share", number / 100)
    if unit in _BYTES_PER:
        return Capacity(label, "bytes", Fraction(math.floor(number * _BYTES_PER[unit])))
    if unit:
        raise UsageError(f"capacity {text!r} has the unknown unit {match[2]!r}; {_RIGHT}")
    if number.denominator != 1:
        raise UsageError(f"capacity {text!r} is a count of experts and must be whole; {_RIGHT}")
    return Capacity(label, "experts", number)


def parse_bytes(text: str, what: str) -> int:
    """Bytes written with their unit (`64MiB`). Raises `UsageError` that names `what` was meant."""
    capacity = parse_capacity(text) if text.strip().lower() != "auto" else None
    if capacity is None or capacity.kind != "bytes" or capacity.value is None:
        raise UsageError(f"{what} must be bytes with their unit (64MiB, 2GB), got {text!r}")
    return int(capacity.value)


def parse_capacities(texts: Sequence[str]) -> tuple[Capacity, ...]:
    """Each of `texts`, in order; the same capacity written twice is an error."""
    parsed = tuple(parse_capacity(text) for text in texts)
    if not parsed:
        raise UsageError(f"no capacity is given; {_RIGHT}")
    labels = [capacity.label for capacity in parsed]
    for label in labels:
        if labels.count(label) > 1:
            raise UsageError(f"capacity {label!r} is given twice")
    return parsed


def format_bytes(value: float | None) -> str:
    """Bytes with a decimal prefix: 1.50 GB."""
    return _scaled(value, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def format_binary_bytes(value: float | None) -> str:
    """Bytes with a binary prefix: 1.40 GiB (for capacities, which people buy in powers of two)."""
    return _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def format_rate(value: float | None) -> str:
    """Bytes a second: 3.35 TB/s."""
    text = format_bytes(value)
    return text if text == UNKNOWN else f"{text}/s"


def format_parameters(value: float | None) -> str:
    """Counts of weights as people say them: 46.7 B (10⁹), 10.4 M (10⁶)."""
    return _scaled(value, 1000, ("", "k", "M", "B", "T")).rstrip()


def format_seconds(value: float | None) -> str:
    """Seconds with the prefix that leaves one to three digits before the point: 12.3 ms."""
    if value is None or math.isnan(value):
        return UNKNOWN
    if value == 0:
        return "0 s"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if abs(value) / scale >= _SHOWS_AS_ONE:
            return f"{_digits(value / scale)} {unit}"
    return f"{_digits(value / 1e-9)} ns"


def format_percent(fraction: float | None, decimals: int = 1) -> str:
    """A fraction as per cent: 0.123 → 12.3 %."""
    if fraction is None or math.isnan(fraction):
        return UNKNOWN
    return f"{100 * fraction:.{decimals}f} %"


def format_count(value: float | None) -> str:
    """A whole number with thousands separated by commas."""
    if value is None or math.isnan(value):
        return UNKNOWN
    return f"{int(value):,}"


def _scaled(value: float | None, step: int, units: tuple[str, ...]) -> str:
    if value is None or math.isnan(value):
        return UNKNOWN
    if abs(value) < step:
        return f"{value:.0f} {units[0]}"
    power = 1
    while power + 1 < len(units) and abs(value) / step ** (power + 1) >= _SHOWS_AS_ONE:
        power += 1
    return f"{_digits(value / step**power)} {units[power]}"


_SHOWS_AS_ONE = 0.9995  # rounded to three digits this is 1.00, so the larger unit is the right one


def _digits(value: float) -> str:
    """Three significant digits while below 1000, all whole digits above."""
    size = abs(value)
    if size < 9.995:
        return f"{value:.2f}"
    if size < 99.95:
        return f"{value:.1f}"
    return f"{value:,.0f}"
