"""A profile's held-out check as lines for people, a calibration's result as a document for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calibration_result import CalibrationResult
    from .profile_check import CheckRow

_HEAD = ("operation", "rows", "median", "p90", "all runs", "p90", "in the 90 % band", "÷ plain", "law")


def check_lines(rows: Sequence[CheckRow]) -> list[str]:
    """One line an operation, then what was left out of each and why."""
    cells = [_HEAD] + [
        (
            row.operation, f"{row.rows:,}", _percent(row.median_ape), _percent(row.p90_ape),
            _percent(row.median_ape_all), _percent(row.p90_ape_all),
            _percent(row.coverage_90) + ("" if row.coverage_passes is not False else " (off)"),
            "–" if row.plain_ratio is None else f"{row.plain_ratio:.2f}", row.law,
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells]
    lines.append("all runs: with the held-out rows that look disturbed put back; who looks so is judged with their help")
    lines.append("÷ plain: median error over that of plain interpolation, nearest shape and linear; below 1 is better")
    for row in rows:
        for framework, (count, median, p90) in sorted(row.parts.items()):
            lines.append(f"{row.operation}, {framework}: {count:,} rows, {_percent(median)} and {_percent(p90)}")
        for reason, count in row.left_out.items():
            lines.append(f"{row.operation}: {count:,} rows left out: {reason}")
    return lines


def calibration_facts(result: CalibrationResult) -> dict[str, Any]:
    """What a calibration found; unknown figures are absent."""
    operations = [
        {key: value for key, value in {**asdict(one), "passes": one.passes}.items() if value is not None}
        for one in result.summaries
    ]
    return {
        "profile": None if result.profile is None else str(result.profile),
        "operations": operations,
        "roof": {"bytes_per_s": result.roof.bytes_per_s, "flops_per_s": dict(result.roof.flops_per_s)},
        "environment": dict(result.environment),
        "unmeasured": list(result.unmeasured),
        **({"skipped": dict(result.skipped)} if result.skipped else {}),
    }


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def mixture_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Of `latent_against_standard`: one line a model and format, a column a number of tokens: µs a token (× floor)."""
    tokens = sorted({row["tokens"] for row in rows})
    lines: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        key = (row["model"], row["dtype"])
        if key not in lines:
            width = f"{row['model_width']}" + (f" → {row['expert_width']}" if row["kind"] == "latent" else "")
            lines[key] = {"model": row["model"], "kind": row["kind"], "width": width, "experts in": row["dtype"]}
            lines[key] |= {_of(count): "–" for count in tokens}
        over = row["seconds"] / row["floor_s"]
        lines[key][_of(row["tokens"])] = f"{1e6 * row['seconds_per_token']:.3g} (× {over:.1f})"
    return list(lines.values())


def _of(tokens: int) -> str:
    return f"{tokens} token{'s' * (tokens > 1)}"
