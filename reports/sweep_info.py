"""What the page of a sweep shows, gathered and aggregated: a page never holds a sweep's rows, only what is drawn.

A *setting* is what a user cannot choose (trace, model, machine, link); repeats of one choice are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from ..workbench.compare import averaged, best, choice_name, front_of, setting_name
from ..workbench.reporting import oracle_gap
from ..workbench.sweep import SweepResult
from ..workbench.sweep_point import CHOICE, SETTING

Row = dict[str, Any]
_WITHOUT_SIZE = ("never", "unbounded")
_ORACLE_PREFETCH = ("perfect", "noisy")
MEASURES = ("hit_rate", "tpot_s", "ttft_s", "bytes_per_output_token")
_AVERAGED = (
    *MEASURES, "accesses", "misses", "late", "collision", "compulsory", "capacity_misses", "makespan_s", "link_busy_s",
    "r_mean", "r_p95", "r_share_above_1", "resident_share", "lossy_weight_share",
)  # fmt: skip
_MOST_LINES = 10  # choices in the figure of link speeds: the best ones at any speed


class SettingInfo(NamedTuple):
    """Everything about one setting."""

    name: str
    rows: tuple[Row, ...]
    """One a choice, repeats averaged, capacities ascending."""
    capacities: tuple[str, ...]
    """Labels, smallest first."""
    policies: tuple[str, ...]
    bounds: tuple[str, ...]


class ChoiceInfo(NamedTuple):
    """What to choose at one capacity of one setting, and why."""

    setting: str
    capacity: str
    choice: str
    value: float
    low: float | None
    high: float | None
    ties: tuple[str, ...]
    reasons: tuple[str, ...]


class LinkInfo(NamedTuple):
    """Times over link speeds at one capacity of one trace."""

    name: str
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    """Choice → (bytes/s, seconds) points."""
    crossings: tuple[str, ...]


def settings_of(result: SweepResult) -> tuple[SettingInfo, ...]:
    """The settings of a sweep in its order; failed scenarios are left out."""
    rows = result.rows
    ran = rows[rows["status"] == "ok"]
    found = []
    kept = [*SETTING, *CHOICE, "is_bound", "is_causal", "capacity_experts", "capacity_bytes", *_AVERAGED]
    for _, of_setting in averaged(ran, _AVERAGED).groupby(list(SETTING), dropna=False, sort=False):
        found_rows = [
            {name: _plain(row[name]) for name in kept} | {"scenarios": tuple(row["scenarios"])}
            for row in of_setting.to_dict("records")
        ]
        rows_here = sorted(found_rows, key=lambda row: row["capacity_experts"])
        for row in rows_here:
            row["capacity_label"] = row["capacity"]
        sized = [row for row in rows_here if row["policy"] not in _WITHOUT_SIZE]
        names = dict.fromkeys(row["policy"] for row in rows_here)
        bounds = {row["policy"] for row in rows_here if row["is_bound"]}
        found.append(
            SettingInfo(
                setting_name(of_setting.iloc[0]), tuple(rows_here), tuple(dict.fromkeys(row["capacity"] for row in sized)),
                tuple(name for name in names if name not in bounds), tuple(name for name in names if name in bounds),
            )
        )  # fmt: skip
    return tuple(found)


def _plain(value: Any) -> Any:
    """A cell as a Python value; missing is None."""
    import pandas as pd

    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value


def choosable(row: Row) -> bool:
    """What a user could run without changing the model's output: no bound, no prefetcher that knows the truth."""
    return (
        bool(row["is_causal"])
        and row["lossy_weight_share"] is None
        and str(row["prefetch"]).split(":")[0] not in _ORACLE_PREFETCH
    )


def at(setting: SettingInfo, capacity: str, policy: str, prefetch: str = "none") -> Row | None:
    """The row of a policy at a capacity with one way to handle a miss (the first)."""
    for row in setting.rows:
        fits = row["capacity"] == capacity or policy in _WITHOUT_SIZE
        if fits and row["policy"] == policy and row["prefetch"] == prefetch:
            return row
    return None


def choice_infos(
    result: SweepResult, settings: Sequence[SettingInfo], objective: str
) -> tuple[ChoiceInfo, ...]:
    """The best choice at each capacity of each setting, what it ties with, and the reasons in numbers."""
    found = []
    capacities = dict.fromkeys(label for setting in settings for label in setting.capacities)
    by_name = {setting.name: setting for setting in settings}
    for capacity in capacities:
        told = best_at(result, objective, capacity)
        for rows in told.values():
            first = rows[0]
            setting = by_name[setting_name(first)]
            ties = tuple(choice_name(row) for row in rows[1:] if row["against_first"] == "tie")
            found.append(
                ChoiceInfo(
                    setting.name, capacity, choice_name(first), first[objective], _plain(first[f"{objective}_low"]),
                    _plain(first[f"{objective}_high"]), ties, tuple(_reasons(setting, first, capacity, objective)),
                )
            )  # fmt: skip
    order = list(by_name)
    return tuple(
        sorted(found, key=lambda one: (order.index(one.setting), list(capacities).index(one.capacity)))
    )


def best_at(result: SweepResult, objective: str, capacity: str) -> dict[str, list[Row]]:
    """Setting → its best rows at one capacity, as `best` ranks and tests them."""
    from ..errors import UsageError

    at_capacity = SweepResult(
        result.folder, result.run, _rows=result.rows[result.rows["capacity"] == capacity]
    )
    try:
        rows = best(at_capacity, objective=objective, top=4).rows.to_dict("records")
    except UsageError:
        return {}
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(setting_name(row), []).append({str(key): value for key, value in row.items()})
    return found


def _reasons(setting: SettingInfo, first: Row, capacity: str, objective: str) -> list[str]:
    ours = next(
        row
        for row in setting.rows
        if all(row[name] == _plain(first[name]) for name in ("policy", "prefetch", "miss", "capacity"))
    )
    reasons = [f"{ours['hit_rate']:.1%} hits"]
    lru = at(setting, capacity, "lru")
    if lru is not None and lru[objective] and ours is not lru:
        reasons.append(f"{lru[objective] / ours[objective]:.2f}× as fast as LRU" if ours[objective] else "")
        if lru["bytes_per_output_token"] and ours["bytes_per_output_token"] is not None:
            change = ours["bytes_per_output_token"] / lru["bytes_per_output_token"] - 1
            reasons.append(f"{change:+.0%} link traffic against LRU".replace("-", "−"))
    whole = at(setting, capacity, "unbounded")
    if whole is not None and whole[objective] and ours[objective]:
        ratio = ours[objective] / whole[objective]
        reasons.append(f"{ratio:.1f}× the time of a cache of everything, which loads each expert once")
    oracle = at(setting, capacity, "belady-mandatory")
    if oracle is not None and ours["misses"]:
        reasons.append(
            f"an oracle without prefetch would keep {oracle['misses'] / ours['misses']:.0%} of its misses"
        )
    if ours["r_mean"] is not None:
        reasons.append(f"regime r = {ours['r_mean']:.2f}, above 1 in {ours['r_share_above_1']:.0%} of events")
    return [reason for reason in reasons if reason]


def gap_rows(settings: Sequence[SettingInfo]) -> list[dict[str, str]]:
    """The reporting block's numbers a capacity: regime beside every gap."""
    found = []
    for setting in settings:
        for capacity in setting.capacities:
            rows = [row for row in setting.rows if row["capacity"] == capacity]
            gap = oracle_gap([row for row in rows if row["accesses"]])
            known = next((row for row in rows if row["r_mean"] is not None), None)
            line = {"setting": setting.name, "capacity": capacity}
            for title, name in (("r mean", "r_mean"), ("r p95", "r_p95"), ("r above 1", "r_share_above_1")):
                line[title] = "unknown" if known is None else f"{known[name]:.2f}"
            line |= {
                key: f"{value:.3f}" if isinstance(value, float) else str(value) for key, value in gap.items()
            }
            found.append(line)
    return found


def pareto_of(setting: SettingInfo, x: str, y: str) -> tuple[list[Row], list[Row]]:
    """Choosable rows with both measures, and the front among them."""
    import pandas as pd

    rows = [row for row in setting.rows if choosable(row) and row[x] is not None and row[y] is not None]
    if not rows:
        return [], []
    front = front_of(pd.DataFrame(rows), x, y)
    return rows, [rows[index] for index in front.index]


def link_infos(settings: Sequence[SettingInfo], objective: str) -> tuple[LinkInfo, ...]:
    """Per trace and capacity: the best choices over link speeds, and where one overtakes another."""
    points: dict[tuple[str, str], dict[str, dict[float, float]]] = {}
    for setting in settings:
        for row in setting.rows:
            link, value = row["link_bytes_per_s"], row[objective]
            if link is None or value is None or not choosable(row):
                continue
            place = (f"{row['trace']} on {row['hardware']}", str(row["capacity"]))
            name = choice_name({**row, "capacity": ""}).removesuffix(" at ")
            points.setdefault(place, {}).setdefault(name, {})[link] = value
    found = []
    for (name, capacity), lines in points.items():
        speeds = sorted({link for line in lines.values() for link in line})
        if len(speeds) < 2:
            continue
        whole = {name: line for name, line in lines.items() if set(line) == set(speeds)}
        rank = {
            name: min(sorted(other[s] for other in whole.values()).index(line[s]) for s in speeds)
            for name, line in whole.items()
        }
        kept = sorted(whole, key=lambda name: (rank[name], name))[:_MOST_LINES]
        crossings = _crossings(whole, speeds)
        found.append(
            LinkInfo(
                f"{name}, capacity {capacity}",
                tuple((one, tuple(sorted(whole[one].items()))) for one in kept),
                crossings,
            )
        )
    return tuple(found)


def _crossings(lines: dict[str, dict[float, float]], speeds: Sequence[float]) -> tuple[str, ...]:
    """Where the leader changes between two speeds: by straight lines over the logarithms of both."""
    leaders = [min(lines, key=lambda name: (lines[name][speed], name)) for speed in speeds]
    found = []
    for (slow, before), (fast, after) in zip(
        zip(speeds, leaders, strict=True), list(zip(speeds, leaders, strict=True))[1:], strict=False
    ):
        if before == after or lines[before][slow] == lines[after][slow]:
            continue
        gap_slow = math.log(lines[after][slow] / lines[before][slow])
        gap_fast = math.log(lines[after][fast] / lines[before][fast])
        if gap_slow <= 0 or gap_fast >= 0:
            continue
        share = gap_slow / (gap_slow - gap_fast)
        speed = slow * (fast / slow) ** share
        found.append(f"{before} leads below {speed / 1e9:.3g} GB/s, {after} above")
    return tuple(found)
