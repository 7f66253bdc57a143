"""A sweep's answers as text for people: units chosen, and only the columns that tell something."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .units import (
    UNKNOWN,
    format_binary_bytes,
    format_bytes,
    format_count,
    format_percent,
    format_rate,
    format_seconds,
)

if TYPE_CHECKING:
    import pandas as pd

_NEVER_SHOWN = {"prefetch_budget_bytes", "capacity_experts", "pairs"}
_SHOW_IF_SEVERAL = {"model", "hardware", "link_bytes_per_s", "miss", "scope", "repeat", "trace", "p_value"}


def readable(rows: pd.DataFrame) -> list[dict[Any, str]]:
    """Each row as texts. Columns with one value throughout are left out where they only say what was asked."""
    shown = [
        name for name in rows.columns
        if name not in _NEVER_SHOWN and not (name in _SHOW_IF_SEVERAL and rows[name].nunique(dropna=False) == 1)
    ]  # fmt: skip
    return [{_title(name): _text(name, row[name]) for name in shown} for row in rows.to_dict("records")]


def _title(name: str) -> str:
    if name == "capacity_bytes":
        return "cache"
    for unit in ("_bytes_per_s", "_bytes", "_s"):
        name = name.removesuffix(unit)
    return name.replace("_s_", "_").replace("_", " ")


def _text(name: str, value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return "sheet" if name == "link_bytes_per_s" else UNKNOWN
    stem = name.removesuffix("_low").removesuffix("_high").removesuffix("_a").removesuffix("_b")
    if isinstance(value, str):
        return value
    if stem.endswith("_bytes_per_s"):
        return format_rate(value)
    if stem == "capacity_bytes":
        return format_binary_bytes(value)
    if stem.startswith("bytes_") or stem.endswith("_bytes"):
        return format_bytes(value)
    if stem.endswith("_s"):
        return format_seconds(value)
    if stem.endswith("_rate") or stem.endswith("_share"):
        return format_percent(value)
    if stem == "ratio":
        return f"{value:.3f}"
    return format_count(value) if float(value).is_integer() else f"{value:.4g}"
