"""Questions to a finished sweep: the best choices, the Pareto front, and what changed between two runs.

Rows are compared only where trace, model, machine and the other parts of the setting agree. Bounds and oracles answer
no such question: nobody can run them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..sim.designs.front import front
from .sweep import SweepResult, load_sweep
from .sweep_point import CHOICE, SETTING
from .sweep_query import LARGER_IS_BETTER, column_of, subset
from .sweep_statistics import FEWEST_PAIRS, Comparison, Interval, mean_interval, paired, ratio_interval
from .sweep_table import COUNTED_PER_SEQUENCE, PER_SEQUENCE
from .units import format_rate

if TYPE_CHECKING:
    import pandas as pd

_ORACLE_PREFETCH = ("perfect", "noisy")
_SHOWN_SETTING = ("trace", "model", "hardware", "link_bytes_per_s")
_NO_ANSWER = "no row of the sweep has a value for it"


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A table and the sentences that go with it."""

    rows: pd.DataFrame
    sentences: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The document that `--json` prints; what is unknown is absent."""
        return {"rows": records(self.rows), "sentences": list(self.sentences), **self.about}


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as plain values, unknown ones absent."""
    import pandas as pd

    found = []
    for row in frame.to_dict("records"):
        known = {
            str(key): value
            for key, value in row.items()
            if isinstance(value, list | dict) or not pd.isna(value)
        }
        found.append(
            {key: value.item() if isinstance(value, np.generic) else value for key, value in known.items()}
        )
    return found


class Evidence:
    """The times, or hits and accesses, of sequences behind each scenario, where the objective has them."""

    def __init__(self, result: SweepResult, objective: str) -> None:
        self._of: dict[str, tuple[Any, ...]] = {}
        self._is_rate = objective == "hit_rate"
        if self._is_rate or objective in PER_SEQUENCE:
            frame = result.sequences
            columns = COUNTED_PER_SEQUENCE if self._is_rate else (objective,)
            if set(columns) <= set(frame):  # sweeps of earlier versions kept no hits
                self._of = {
                    name: tuple(values)
                    for name, *values in zip(frame["scenario"], *(frame[one] for one in columns), strict=True)
                    if all(value is not None for value in values)
                }

    def of(self, scenarios: Sequence[str]) -> NDArray[np.float64]:
        """All sequences of all repeats, one after another; empty where nothing is known."""
        values = self._values(scenarios)
        if not self._is_rate:
            return values[0]
        hits, accesses = values
        rates: NDArray[np.float64] = np.divide(hits, accesses, out=np.full(len(hits), np.nan), where=accesses > 0)
        return rates

    def interval(self, scenarios: Sequence[str]) -> Interval:
        """By bootstrap over all sequences; of a hit rate, that of all hits ÷ all accesses, as the table has it."""
        values = self._values(scenarios)
        return ratio_interval(values[0], values[1]) if self._is_rate else mean_interval(values[0])

    def _values(self, scenarios: Sequence[str]) -> list[NDArray[np.float64]]:
        found = [self._of[name] for name in scenarios if name in self._of]
        if not found or len(found) != len(scenarios):
            return [np.zeros(0)] * (2 if self._is_rate else 1)
        return [np.concatenate([np.asarray(one, np.float64) for one in part]) for part in zip(*found, strict=True)]


def averaged(rows: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """One row for each setting and choice: `columns` averaged over its repeats, and `scenarios`, the list of them."""
    import pandas as pd

    rows = rows.sort_values("repeat", kind="stable")
    group = rows.groupby([*SETTING, *CHOICE], dropna=False, sort=False).ngroup().to_numpy()
    means = rows[list(columns)].astype(float).groupby(group).mean()
    scenarios = rows["scenario"].astype(str).groupby(group).agg(list)
    first = rows[~pd.Series(group).duplicated().to_numpy()]
    return first.assign(**{name: means[name].to_numpy() for name in columns}, scenarios=scenarios.to_numpy())


def best(
    run: SweepResult | str | Path, *, objective: str = "tpot", subject: str | None = None, top: int = 5
) -> Answer:
    """The `top` choices of each setting by an objective, the first with its interval, the others tested against it.

    Repeats of one choice are taken together. A choice that the paired test does not tell apart from the first is
    called a tie. `subject` are conditions such as "capacity<=2GiB, prefetch=none". Raises `UsageError` where a column
    is unknown or no row is left.
    """
    result = _loaded(run)
    column = column_of(objective)
    rows = _askable(subset(result.rows, subject), subject, column)
    evidence, sign = Evidence(result, column), -1.0 if column in LARGER_IS_BETTER else 1.0
    import pandas as pd

    found, sentences = [], []
    together = averaged(rows, [column] if column == "hit_rate" else [column, "hit_rate"])
    for _, of_setting in together.groupby(list(SETTING), dropna=False, sort=False):
        choices = sorted(
            of_setting.to_dict("records"),
            key=lambda one: (sign * one[column], *(str(one[name]) for name in CHOICE)),
        )
        first = choices[0]
        told = [
            _told(one, first, rank, column, evidence, sign) for rank, one in enumerate(choices[:top], start=1)
        ]
        found += told
        sentences.append(_sentence(told, column, len(choices)))
    return Answer(pd.DataFrame(found), tuple(sentences), {"objective": column, "subject": subject or ""})


def _told(
    one: dict[Any, Any], first: dict[Any, Any], rank: int, column: str, evidence: Evidence, sign: float
) -> dict[str, Any]:
    ours, theirs = evidence.of(one["scenarios"]), evidence.of(first["scenarios"])
    interval = evidence.interval(one["scenarios"])
    against = _against(one, first, ours, theirs, column, sign)
    settings = {name: one[name] for name in _SHOWN_SETTING}
    choice = {name: one[name] for name in CHOICE}
    return {
        "rank": rank, **settings, **choice, "capacity_experts": one["capacity_experts"],
        "capacity_bytes": one["capacity_bytes"], "hit_rate": one["hit_rate"], column: one[column],
        f"{column}_low": interval.low, f"{column}_high": interval.high,
        "against_first": "first" if one is first else against.verdict,
        "ratio": one[column] / first[column] if first[column] else None, "p_value": against.p_value,
        "pairs": against.pairs or None,
    }  # fmt: skip


def _against(
    one: dict[Any, Any],
    first: dict[Any, Any],
    ours: NDArray[np.float64],
    theirs: NDArray[np.float64],
    column: str,
    sign: float,
) -> Comparison:
    if len(ours) and len(ours) == len(theirs):
        return paired(sign * ours, sign * theirs)
    return Comparison("tie" if one[column] == first[column] else "untested", None, None, 0)


def _sentence(told: Sequence[dict[str, Any]], column: str, among: int) -> str:
    first = told[0]
    ties = [choice_name(one) for one in told[1:] if one["against_first"] == "tie"]
    text = f"{setting_name(first)}: {choice_name(first)} comes first of {among} choices by {column}"
    if first[f"{column}_low"] is not None:
        text += f" ({first[column]:.4g}, 95 % interval {first[f'{column}_low']:.4g} to {first[f'{column}_high']:.4g})"
    if ties:
        text += f"; it ties with {', '.join(ties)}"
    untested = any(one["against_first"] == "untested" for one in told[1:])
    if untested:
        text += (
            f"; nothing is said of significance: it takes {FEWEST_PAIRS} sequences with values of their own"
        )
    return text + "."


def choice_name(row: Any) -> str:
    """lru + gate at 5%, load"""
    text = str(row["policy"])
    if row["prefetch"] != "none":
        text += f" + {row['prefetch']}"
    return f"{text} at {row['capacity']}" + ("" if row["miss"] == "load" else f", {row['miss']}")


def setting_name(row: Any) -> str:
    """olmoe-shaped on rtx-4090, link 16.0 GB/s"""
    import pandas as pd

    text = " on ".join(str(row[name]) for name in ("trace", "hardware") if not pd.isna(row[name]))
    link = row["link_bytes_per_s"]
    return text if pd.isna(link) else f"{text}, link {format_rate(link)}"


def _loaded(run: SweepResult | str | Path) -> SweepResult:
    return run if isinstance(run, SweepResult) else load_sweep(run)


def _askable(rows: pd.DataFrame, subject: str | None, *columns: str) -> pd.DataFrame:
    """Rows that a user could choose, with all of these columns known.

    Miss handling that changes what the model says is no equal choice: it takes part only where `subject` names `miss`.
    """
    if rows.empty:
        raise UsageError("no scenario is left by these conditions")
    ran = rows[(rows["status"] == "ok") & rows["is_causal"].fillna(False).astype(bool)]
    real = ran[~ran["prefetch"].str.split(":").str[0].isin(_ORACLE_PREFETCH)]
    if "miss" not in (subject or ""):
        real = real[real["lossy_weight_share"].isna()]
    known = real.dropna(subset=list(columns))
    if known.empty:
        raise UsageError(
            f"no scenario has {' and '.join(columns)}: {_NO_ANSWER} (times need a model and a machine, TTFT a prompt, "
            "TPOT two tokens; bounds and oracles are left out)"
        )
    return known


def pareto(run: SweepResult | str | Path, *, x: str, y: str, subject: str | None = None) -> Answer:
    """The choices that none beats in both x and y, of each setting, along x. Smaller is better but for hit rates."""
    result = _loaded(run)
    columns = [column_of(x), column_of(y)]
    if columns[0] == columns[1]:
        raise UsageError(f"x and y are both {columns[0]}: choose two")
    rows = _askable(subset(result.rows, subject), subject, *columns)
    import pandas as pd

    found, sentences = [], []
    for _, of_setting in rows.groupby(list(SETTING), dropna=False, sort=False):
        best_of = front_of(of_setting, columns[0], columns[1])
        shown = dict.fromkeys((*_SHOWN_SETTING, *CHOICE, "capacity_experts", "capacity_bytes", *columns))
        found.append(best_of[list(shown)])
        sentences.append(
            f"{setting_name(best_of.iloc[0])}: {len(best_of)} of {len(of_setting)} scenarios are on the front."
        )
    return Answer(pd.concat(found, ignore_index=True), tuple(sentences), {"x": columns[0], "y": columns[1]})


def front_of(rows: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Rows that no other row equals or beats in both while beating it in one; of equal rows the first."""
    signs = [-1.0 if name in LARGER_IS_BETTER else 1.0 for name in (x, y)]
    costs = rows[[x, y]].to_numpy(np.float64) * signs
    found = np.flatnonzero(front(costs))
    found = found[np.argsort(costs[found, 0], kind="stable")]
    _, first = np.unique(costs[found, 0], return_index=True)  # on a front of two, equal in one is equal in both
    return rows.iloc[found[first]]


def compare(
    run_a: SweepResult | str | Path,
    run_b: SweepResult | str | Path,
    *,
    objective: str = "tpot",
    subject: str | None = None,
) -> Answer:
    """Every scenario that both runs hold, A beside B, each pair tested over its sequences.

    Scenarios are matched by their configuration, so the same study on other inputs or of another version compares.
    """
    first, second = _loaded(run_a), _loaded(run_b)
    column = column_of(objective)
    sign = -1.0 if column in LARGER_IS_BETTER else 1.0
    keys = [*SETTING, *CHOICE, "seed", "tie_seed", "repeat"]
    frames = [subset(one.rows, subject) for one in (first, second)]
    frames = [frame[frame["status"] == "ok"].dropna(subset=[column]) for frame in frames]
    both = frames[0].merge(frames[1], on=keys, suffixes=("_a", "_b"), how="inner")
    if both.empty:
        raise UsageError(f"the two runs have no scenario in common that has {column}")
    evidence = [Evidence(one, column) for one in (first, second)]
    found = []
    for row in both.to_dict("records"):
        a, b = (one.of([str(row[f"scenario_{side}"])]) for one, side in zip(evidence, "ab", strict=True))
        ours, theirs = float(row[f"{column}_a"]), float(row[f"{column}_b"])
        if len(a) and len(a) == len(b):
            found_pair = paired(sign * a, sign * b)
        else:
            found_pair = Comparison("tie" if ours == theirs else "untested", None, None, 0)
        found.append(
            {
                **{name: row[name] for name in (*_SHOWN_SETTING, *CHOICE, "repeat")}, f"{column}_a": ours,
                f"{column}_b": theirs, "ratio": ours / theirs if theirs else None, "a_is": found_pair.verdict,
                "p_value": found_pair.p_value,
            }
        )  # fmt: skip
    import pandas as pd

    table = pd.DataFrame(found)
    counts = table["a_is"].value_counts()
    text = ", ".join(
        f"{counts[name]} {name}" for name in ("better", "worse", "tie", "untested") if name in counts
    )
    only = [len(frame) - len(both) for frame in frames]
    sentences = [f"Of {len(both)} scenarios in both runs A is: {text} (by {column})."]
    if any(only):
        sentences.append(f"{only[0]} scenarios stand in A only, {only[1]} in B only.")
    ratios = table["ratio"].dropna()
    if len(ratios) and (ratios > 0).all():
        sentences.append(f"A ÷ B, geometric mean: {float(np.exp(np.log(ratios.astype(float)).mean())):.4g}.")
    return Answer(table, tuple(sentences), {"objective": column})
