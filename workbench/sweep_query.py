"""What people ask of a sweep, as text: an objective ("tpot"), conditions ("capacity<=2GiB, policy!=static")."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UsageError, unknown_name
from .sweep_table import COLUMNS
from .units import parse_capacity

if TYPE_CHECKING:
    import pandas as pd

SHORT: Mapping[str, str] = {
    "tpot": "tpot_s", "ttft": "ttft_s", "makespan": "makespan_s", "stall": "stall_s", "hits": "hits", "link": "link_busy_s",
    "bytes": "bytes_moved", "traffic": "bytes_per_output_token", "hit-rate": "hit_rate", "r": "r_mean",
}  # fmt: skip
LARGER_IS_BETTER = frozenset({"hit_rate", "hits", "prefetch_used"})
_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<=": operator.le, ">=": operator.ge, "!=": operator.ne, "==": operator.eq, "<": operator.lt, ">": operator.gt,
    "=": operator.eq,
}  # fmt: skip
_CONDITION = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_-]*)\s*(<=|>=|!=|==|<|>|=)\s*(.+?)\s*")
_RATE = re.compile(r"(.+?)\s*/\s*s")
_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_TIME = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*(s|ms|us|µs|ns)")


def column_of(name: str, *, numeric: bool = True) -> str:
    """The column that a short or whole name means. Raises `UsageError` naming the nearest one."""
    found = SHORT.get(name, name)
    if found not in COLUMNS or (numeric and COLUMNS[found] not in ("real", "whole")):
        known = [column for column, kind in COLUMNS.items() if not numeric or kind in ("real", "whole")]
        raise unknown_name("column", name, [*SHORT, *known])
    return found


def subset(rows: pd.DataFrame, conditions: str | None) -> pd.DataFrame:
    """The rows for which every condition holds (a comma between them). Unknown values hold for none."""
    for text in (conditions or "").split(","):
        if text.strip():
            rows = rows[_mask(rows, text)]
    return rows


def _mask(rows: pd.DataFrame, text: str) -> Any:
    match = _CONDITION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"the condition {text.strip()!r} is not understood; write capacity<=2GiB, policy!=static, tpot<50ms"
        )
    name, comparison, value = match.groups()
    compare = _OPERATORS[comparison]
    if name == "capacity":
        return _capacity(rows, compare, value, text)
    column = column_of(name, numeric=False)
    kind = COLUMNS[column]
    if kind == "text":
        if comparison not in ("=", "==", "!="):
            raise UsageError(f"{text.strip()!r}: {column} is a text, and can only be equal (=) or not (!=)")
        return compare(rows[column].fillna(""), value)
    if kind == "flag":
        if value.lower() not in ("true", "false"):
            raise UsageError(f"{text.strip()!r}: {column} is true or false, got {value!r}")
        return compare(rows[column], value.lower() == "true").fillna(False).astype(bool)
    return compare(rows[column], _number(value, text)).fillna(False).astype(bool)


def _capacity(rows: pd.DataFrame, compare: Callable[[Any, Any], Any], value: str, text: str) -> Any:
    """A capacity is compared in the unit that it is written in: a share, bytes or experts."""
    asked = parse_capacity(value)
    if asked.value is None:
        raise UsageError(f"{text.strip()!r}: compare with a share (5%), bytes (2GiB) or experts (64)")
    column = {"share": "resident_share", "bytes": "capacity_bytes", "experts": "capacity_experts"}[asked.kind]
    limit = float(asked.value)
    if asked.kind == "share":
        # A share of all experts was floored to whole ones: capacity<=5% asks for what 5% was run with.
        everything = (rows["capacity_experts"] / rows["resident_share"]).round()
        return compare(rows["capacity_experts"], (everything * limit + 1e-9) // 1).fillna(False).astype(bool)
    return compare(rows[column], limit).fillna(False).astype(bool)


def _number(value: str, text: str) -> float:
    """A plain number, bytes (64MiB), bytes a second (16GB/s), a time (5ms) or a share (5%)."""
    try:
        return float(value)
    except ValueError:
        pass
    if time := _TIME.fullmatch(value):
        return float(time[1]) * _TIMES[time[2]]
    rate = _RATE.fullmatch(value)
    try:
        found = parse_capacity(rate[1] if rate else value)
    except UsageError:
        found = None
    if found is None or found.value is None:
        raise UsageError(
            f"{text.strip()!r}: {value!r} is no number with a known unit (5ms, 16GB/s, 64MiB, 5%)"
        )
    return float(found.value)
