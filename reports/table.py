"""The results as a table: one group of rows a capacity, bounds first, one unit a column."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from .rows import Row, capacity_labels, in_order
from .scales import COUNT, PERCENT, UNKNOWN, Unit, bytes_unit, named_value, seconds_unit

_UnitOf = Callable[[Iterable[float]], Unit]


def _count(_: Iterable[float]) -> Unit:
    return COUNT


def _percent(_: Iterable[float]) -> Unit:
    return PERCENT


class _Known(NamedTuple):
    column: str
    title: str
    unit: _UnitOf
    best: Callable[[Iterable[float]], float] | None = None


_MAIN = (
    _Known("hit_rate", "hit rate", _percent, max),
    _Known("tpot_s", "TPOT", seconds_unit, min),
    _Known("ttft_s", "TTFT", seconds_unit, min),
    _Known("bytes_moved", "moved", bytes_unit, min),
    _Known("misses", "misses", _count, min),
    _Known("compulsory", "compulsory", _count),
    _Known("capacity", "capacity", _count),
    _Known("collision", "collision", _count),
    _Known("late", "late", _count),
)
_REST = (
    _Known("logical", "logical", _count),
    _Known("accesses", "accesses", _count),
    _Known("hits", "hits", _count),
    _Known("evictions", "evictions", _count),
    _Known("bypasses", "bypasses", _count),
    _Known("waves", "waves", _count),
    _Known("prefetch_issued", "prefetches issued", _count),
    _Known("prefetch_used", "used", _count),
    _Known("prefetch_late", "late", _count),
    _Known("prefetch_wasted", "wasted", _count),
    _Known("prefetch_evicted_unused", "evicted unused", _count),
    _Known("makespan_s", "whole run", seconds_unit),
    _Known("compute_busy_s", "compute busy", seconds_unit),
    _Known("link_busy_s", "link busy", seconds_unit),
    _Known("stall_s", "stalled", seconds_unit),
)
_NAMES = (
    "policy",
    "prefetch",
    "capacity_label",
    "capacity_experts",
    "capacity_bytes",
    "is_bound",
    "hit_rate",
)


class Column(NamedTuple):
    key: str
    title: str
    unit: str
    """Empty for counts and text."""
    is_number: bool


class Cell(NamedTuple):
    text: str
    is_number: bool
    is_best: bool
    """Whether this is the best of the policies (not the bounds) at this capacity."""


class TableRow(NamedTuple):
    policy: str
    prefetch: str
    is_bound: bool
    cells: tuple[Cell, ...]


class Group(NamedTuple):
    """All rows of one capacity."""

    capacity_label: str
    size: str
    """How many experts and bytes that is, as far as known."""
    rows: tuple[TableRow, ...]


class TableInfo(NamedTuple):
    columns: tuple[Column, ...]
    """Columns that are unknown in every row are absent."""
    groups: tuple[Group, ...]


def table_info(rows: Sequence[Row]) -> TableInfo:
    """What a reader compares first: hit rate, times, bytes, misses by kind."""
    return _table(rows, _MAIN)


def counts_info(rows: Sequence[Row]) -> TableInfo:
    """Everything else in the rows, columns that this module has never heard of included."""
    known = {column.column for column in (*_MAIN, *_REST)} | set(_NAMES)
    others = dict.fromkeys(key for row in rows for key in row if key not in known)
    return _table(rows, _REST, tuple(others))


def _table(rows: Sequence[Row], known: Sequence[_Known], others: Sequence[str] = ()) -> TableInfo:
    present = [column for column in known if any(column.column in row for row in rows)]
    units = {
        column.column: column.unit([row[column.column] for row in rows if column.column in row])
        for column in present
    }
    shows = {name: unit.aligned(row[name] for row in rows if name in row) for name, unit in units.items()}
    columns = [Column(one.column, one.title, units[one.column].name, True) for one in present]
    columns += [Column(name, name.replace("_", " "), "", False) for name in others]
    groups = []
    for label in capacity_labels(rows):
        members = [row for row in in_order(rows) if str(row["capacity_label"]) == label]
        best = {one.column: _best(members, one) for one in present}
        lines = []
        for row in members:
            cells = [
                _cell(row, one.column, shows[one.column], best[one.column])
                for one in present
            ] + [Cell(named_value(name, row.get(name)), False, False) for name in others]  # fmt: skip
            lines.append(
                TableRow(str(row["policy"]), str(row["prefetch"]), bool(row.get("is_bound")), tuple(cells))
            )
        groups.append(Group(label, _size(members[0]), tuple(lines)))
    return TableInfo(tuple(columns), tuple(groups))


def _best(members: Sequence[Row], column: _Known) -> float | None:
    """The best value among several policies; None where there is nothing to choose from."""
    values = [row[column.column] for row in members if not row.get("is_bound") and column.column in row]
    return column.best(values) if column.best and len(set(values)) > 1 else None


def _cell(row: Row, name: str, show: Callable[[float], str], best: float | None) -> Cell:
    value: Any = row.get(name)
    if value is None:
        return Cell(UNKNOWN, False, False)
    return Cell(show(value), True, best is not None and value == best and not row.get("is_bound"))


def _size(row: Row) -> str:
    parts = []
    if "capacity_experts" in row:
        parts.append(f"{COUNT.show(row['capacity_experts'])} experts")
    if "capacity_bytes" in row:
        parts.append(named_value("capacity_bytes", row["capacity_bytes"]))
    return ", ".join(parts) or "size unknown"
