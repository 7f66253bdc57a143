"""What a replay found, as an object: tidy rows, a table for people, the reporting block, one sentence."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .units import format_bytes, format_count, format_percent, format_seconds

if TYPE_CHECKING:
    import pandas as pd

_KINDS = ("late", "collision", "compulsory", "capacity")
_TITLES = {"late": "late", "collision": "collision", "compulsory": "first use", "capacity": "capacity"}


@dataclass(frozen=True, slots=True, eq=False)
class ReplayResult:
    """A finished replay. `rows` and `layers` are tidy, with units in their column names."""

    rows: pd.DataFrame
    """One row per policy × prefetcher × capacity, bounds first."""
    layers: pd.DataFrame
    """Counts per policy × prefetcher × capacity × layer (the model's own layer numbers)."""
    reporting: dict[str, Any]
    run: dict[str, Any]
    """Inputs with hashes, options, where the times come from, warnings."""
    timeline: dict[str, Any] | None = None
    """Segments of a few passes: {policy, prefetch, capacity_label, events}."""

    @property
    def has_times(self) -> bool:
        return self.run["costs"] is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(self.run["warnings"])

    @property
    def table(self) -> pd.DataFrame:
        """The table for people: text with units, bounds first, then by capacity and by TPOT (or misses)."""
        import pandas as pd

        shown = []
        for row in self.rows.to_dict("records"):
            line = {
                "policy": f"[{row['policy']}]" if row["is_bound"] else row["policy"],
                "prefetch": "–" if row["prefetch"] == "none" else row["prefetch"],
                "cache": _cache(row),
                "hit rate": format_percent(row["hit_rate"]),
                "misses": format_count(row["misses"]),
                **{
                    _TITLES[kind]: format_count(row[kind])
                    for kind in _KINDS
                    if kind != "late" or self.has_times
                },
                "moved": format_bytes(row["bytes_moved"])
                if self.run["model"]
                else f"{format_count(row['experts_moved'])} experts",
            }
            if self.has_times:
                line["TTFT"] = format_seconds(row["ttft_s"])
                line["TPOT"] = format_seconds(row["tpot_s"])
                line["waiting"] = format_percent(row["stall_s"] / row["makespan_s"], 0)
            if "lossy_weight_share" in row:
                line["on host"] = format_count(row["computed_on_host"])
                share = row["lossy_weight_share"]
                line["weight changed"] = "–" if pd.isna(share) else format_percent(share)
            shown.append(line)
        return pd.DataFrame(shown)

    def sentence(self) -> str:
        """What the table means, in one sentence."""
        return str(self.run["sentence"])

    def reporting_lines(self) -> list[str]:
        """The reporting block folded to two lines."""
        from .reporting import two_lines

        return two_lines(
            self.reporting, [key.removeprefix("at ") for key in self.reporting if key.startswith("at ")]
        )

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints; what is undefined is absent."""
        rows = []
        for row in self.rows.to_dict("records"):
            known = {key: value for key, value in row.items() if value is not None and not _is_nan(value)}
            known["misses_by_kind"] = {kind: known[kind] for kind in _KINDS if kind in known}
            rows.append(known)
        return {"rows": rows, "reporting": self.reporting, **self.run}

    def save(self, folder: str | Path) -> Path:
        """Write the run directory that `workbench report` and `load_run` read."""
        from .run_store import save_run

        return save_run(self, folder)


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _cache(row: Mapping[Any, Any]) -> str:
    experts, label = str(row["capacity_experts"]), row["capacity_label"]
    return f"{experts} experts" if label == experts else f"{label} = {experts}"


def sentence_of(rows: list[dict[str, Any]], sizes: list[str], *, has_times: bool) -> str:
    """One sentence about the smallest capacity: the best choice, against what, and how far from the bound."""
    label = sizes[0]
    own = [row for row in rows if row["capacity_label"] == label and not row["is_bound"]]
    if not own:
        return f"Only bounds were run at {label}: choose policies to compare with them."
    by_time = has_times and all(row["tpot_s"] is not None for row in own)
    key = "tpot_s" if by_time else "misses"
    ordered = sorted(own, key=lambda row: (row[key], row["policy"], row["prefetch"]))
    best, worst = ordered[0], ordered[-1]

    def figure(row: dict[str, Any]) -> str:
        return f"{format_seconds(row['tpot_s'])} a token" if by_time else f"{row['misses']:,} misses"

    text = f"At {label} ({best['capacity_experts']} experts) {_name(best)} comes first with {figure(best)}"
    text += f" and {format_percent(best['hit_rate'])} hits"
    if worst is not best:
        text += (
            f", against {figure(worst)} of {_name(worst)}"
            if worst[key] != best[key]
            else f", and {_name(worst)} equals it"
        )
    bound = next(
        (r for r in rows if r["policy"] == "belady-mandatory" and r["capacity_label"] == label), None
    )
    plain = [row for row in own if row["prefetch"] == "none" and row["is_causal"]]
    if bound is not None and plain:
        least = min(plain, key=lambda row: (row["misses"], row["policy"]))
        if least["misses"]:
            share = bound["misses"] / least["misses"]
            text += f"; without prefetch {share:.0%} of the misses of {least['policy']} would remain even to an oracle"
    return text + "."


def _name(row: dict[str, Any]) -> str:
    return row["policy"] if row["prefetch"] == "none" else f"{row['policy']} with {row['prefetch']}"
