"""A result's tables as plain rows, and the one order in which every table and figure shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .embed import plain

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]
NO_PREFETCH = "none"


def plain_rows(frame: pd.DataFrame | None) -> list[Row]:
    """Rows as Python values by column name. What is unknown (NaN, NA, None) is left out of its row."""
    if frame is None:
        return []
    import pandas as pd

    columns = [str(name) for name in frame.columns]
    rows = []
    for values in frame.itertuples(index=False, name=None):
        row = {}
        for name, value in zip(columns, values, strict=True):
            if value is None or (pd.api.types.is_scalar(value) and pd.isna(value)):
                continue
            clean = plain(value)
            if clean is not None:
                row[name] = clean
        rows.append(row)
    return rows


def capacity_key(row: Row) -> tuple[float, str]:
    """Sorts capacities by the experts they hold; one without a number goes last."""
    return row.get("capacity_experts", float("inf")), str(row.get("capacity_label", ""))


def in_order(rows: Iterable[Row]) -> list[Row]:
    """Capacities ascending; in each the bounds first, then the fastest, else the fewest misses."""

    def key(row: Row) -> tuple[Any, ...]:
        if row.get("is_bound"):
            return (*capacity_key(row), 0, 0.0, 0.0)
        return (*capacity_key(row), 1, row.get("tpot_s", float("inf")), row.get("misses", float("inf")))

    return sorted(rows, key=key)


def capacity_labels(rows: Iterable[Row]) -> list[str]:
    """The capacities as the user asked for them, ascending, each once."""
    return list(dict.fromkeys(str(row["capacity_label"]) for row in sorted(rows, key=capacity_key)))


def capacity_choices(rows: Iterable[Row]) -> list[str]:
    """The same, for figures that show one capacity at a time: those at which only bounds ran come last."""
    rows = list(rows)
    contested = {str(row["capacity_label"]) for row in rows if not row.get("is_bound")}
    return sorted(capacity_labels(rows), key=lambda label: label not in contested)


def prefetchers(rows: Iterable[Row]) -> list[str]:
    """The prefetchers that ran, "none" first, the others as they come."""
    found = dict.fromkeys(str(row["prefetch"]) for row in rows)
    return sorted(found, key=lambda name: name != NO_PREFETCH)


def bound_names(rows: Iterable[Row]) -> list[str]:
    return list(dict.fromkeys(str(row["policy"]) for row in rows if row.get("is_bound")))


def policy_names(rows: Iterable[Row]) -> list[str]:
    """Policies that are no bounds, by name: so the same set has the same colours in every report."""
    return sorted({str(row["policy"]) for row in rows if not row.get("is_bound")})


def contender(row: Row) -> str:
    """`policy`, or `policy + prefetch` where a prefetcher ran."""
    if row["prefetch"] == NO_PREFETCH:
        return str(row["policy"])
    return f"{row['policy']} + {row['prefetch']}"
