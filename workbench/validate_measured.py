"""A user's own measurements, from the engine they serve with, in place of a run of ours.

The file is CSV with the columns scenario, metric, value and repeats, one row a measured value or one a repeat: `scenario` is a
scenario file (relative to the CSV), `metric` is ttft_s or tpot_s, `value` in seconds, `repeats` how many runs it stands for.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InputFileError, UsageError
from ..files import existing_file
from .validate_band import spread_of
from .validate_result import Metric

_COLUMNS = ("scenario", "metric", "value", "repeats")
_METRICS = ("ttft_s", "tpot_s")


class MeasuredRow(NamedTuple):
    """One line of the file."""

    line: int
    scenario: str
    metric: str
    value: float
    repeats: int


class MeasuredComparison(NamedTuple):
    """Predicted beside a user's measurement, for one scenario file and metric."""

    scenario: str
    policy: str
    prefetch: str
    capacity: str
    metric: Metric
    repeats: int

    def to_dict(self) -> dict[str, Any]:
        named = {
            name: getattr(self, name) for name in ("scenario", "policy", "prefetch", "capacity", "repeats")
        }
        return {**named, "metric": self.metric.name, **self.metric.to_dict()}


def read_measured(path: str | Path) -> list[MeasuredRow]:
    """The rows of the file. Raises `InputFileError` that names line, column, value and what would be right."""
    source = existing_file(path)
    found = []
    with source.open(encoding="utf-8-sig", newline="") as stream:
        reader = csv.DictReader(stream)
        missing = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise InputFileError(
                source, f"lacks the column {missing[0]!r}; it needs {', '.join(_COLUMNS)}", "line 1"
            )
        for row in reader:
            where = f"line {reader.line_num}"
            if row["metric"] not in _METRICS:
                raise InputFileError(
                    source, f"metric {row['metric']!r} is none of {', '.join(_METRICS)}", where
                )
            value = _positive(source, where, "value", row["value"])
            repeats = _positive(source, where, "repeats", row["repeats"])
            if repeats != int(repeats):
                raise InputFileError(source, f"repeats must be a whole number, got {row['repeats']!r}", where)
            found.append(
                MeasuredRow(reader.line_num, row["scenario"] or "", row["metric"], value, int(repeats))
            )
    if not found:
        raise InputFileError(source, "holds no measurements, only the header")
    return found


def _positive(source: Path, where: str, name: str, text: str | None) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InputFileError(source, f"{name} must be a number above 0, got {text!r}", where)
    return value


def compare_measured(path: str | Path) -> list[MeasuredComparison]:
    """Replay each scenario the file names and set the prediction beside the measured values.

    A scenario must leave one configuration to compare: one policy, prefetcher and capacity. Raises `UsageError` otherwise, or
    where it names no machine, for then nothing is predicted.
    """
    from .scenario import load_scenario, replay_scenario

    rows, folder = read_measured(path), Path(path).resolve().parent
    found = []
    for name in dict.fromkeys(row.scenario for row in rows):
        file = folder / name
        chosen = load_scenario(file)
        for kind, listed in (
            ("policy", chosen.policies),
            ("prefetch", chosen.prefetch),
            ("capacity", chosen.capacities),
        ):
            if len(listed) != 1:
                raise UsageError(
                    f"{file}: a measured run had one {kind}, the scenario lists {', '.join(listed)}"
                )
        table = replay_scenario(file).rows
        mine = table[
            (table["policy"] == chosen.policies[0]) & (table["prefetch"] == chosen.prefetch[0])
        ].to_dict("records")
        mine = [row for row in mine if row["capacity_label"] == chosen.capacities[0]] or mine
        for metric in _METRICS:
            values = [row for row in rows if (row.scenario, row.metric) == (name, metric)]
            if not values:
                continue
            predicted = mine[0][metric]
            if predicted is None or math.isnan(predicted):
                raise UsageError(
                    f"{file}: {metric} is not predicted; the scenario needs model, hardware and prompts (TTFT)"
                )
            ordered = sorted(row.value for row in values for _ in range(row.repeats))
            middle = (
                ordered[len(ordered) // 2]
                if len(ordered) % 2
                else sum(ordered[len(ordered) // 2 - 1 :][:2]) / 2
            )
            found.append(
                MeasuredComparison(
                    name, chosen.policies[0], chosen.prefetch[0], chosen.capacities[0],
                    Metric(metric, float(predicted), None, None, middle, spread_of(ordered)), len(ordered),
                )
            )  # fmt: skip
    return found
