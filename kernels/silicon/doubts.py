"""Rows that cannot be right, or that contradict their neighbours: named and counted, never averaged away.

- not a time: missing, zero, negative, infinite;
- an older version's row of a run that a newer version measured again;
- the same run twice in one version with times apart: the rows contradict each other;
- faster than the dense peak allows by more than 1 % (case B17): unit, count of operations or sheet is wrong;
- at least 1.5 times as long as a run of the same kernel that does *more* of the same work (more tokens, or the same
  tokens on fewer ranks): disturbed, or a badly tuned tactic. Tile steps and changes of kernel stay below that factor.

Rows faster than device memory allows are counted too, but kept: weights that fit into the cache are not read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...sim.measurement import operations_of
from ...sim.profile.axes import axes_of
from ...sim.profile.codes import codes_of
from ...sim.profile.roof import Roof

if TYPE_CHECKING:
    import pandas as pd

SLACK = 1.01
DISTURBED = 1.5
NO_TIME, OLDER, TWICE = "no time", "older version of the same run", "same run, contradictory times"
PEAK, SLOWER, CACHED = (
    "faster than the dense peak",
    "1.5 times slower than more work",
    "faster than device memory (kept)",
)


def add_doubts(operation: str, rows: pd.DataFrame, roof: Roof) -> tuple[pd.DataFrame, dict[str, int]]:
    """Rows that are times, with a column `doubt`, and the count per reason. Rows without a time are dropped, counted."""
    axes = axes_of(operation)
    seconds = rows["seconds"].to_numpy(np.float64)
    times = np.isfinite(seconds) & (seconds > 0.0)
    counts = {NO_TIME: int((~times).sum())}
    rows = rows[times].reset_index(drop=True)
    doubt = np.full(len(rows), "", dtype=object)
    wanted = (*axes.shape, axes.a, axes.b, *axes.group, "framework", "kernel", "dtype")
    key = [name for name in wanted if name is not None and name in rows]
    seconds = rows["seconds"].to_numpy(np.float64)
    run, run_of_version = codes_of(rows, key), codes_of(rows, [*key, "version"])
    first = np.full(int(run.max(initial=-1)) + 1, len(rows))
    np.minimum.at(first, run, np.arange(len(rows)))  # newest versions are read first
    doubt[run_of_version != run_of_version[first[run]]] = OLDER
    least, most = np.full(len(rows), np.inf), np.zeros(len(rows))
    np.minimum.at(least, run_of_version, seconds)
    np.maximum.at(most, run_of_version, seconds)
    doubt[(most[run_of_version] > SLACK * least[run_of_version]) & (doubt == "")] = TWICE
    cached = np.zeros(len(rows), bool)
    for index, one in operations_of(operation, rows[[c for c in rows if c in (*axes.defaults,)]]):
        took = rows["seconds"].to_numpy(np.float64)[index] * SLACK
        impossible = np.asarray(one.flops, np.float64) / roof.peak(one.arithmetic) > took
        doubt[index[impossible & (doubt[index] == "")]] = PEAK
        if operation not in ("collective", "all_to_all"):
            cached[index] = np.asarray(one.bytes, np.float64) / roof.bandwidth > took
    doubt[_slower_than_more_work(rows, axes.b, key) & (doubt == "")] = SLOWER
    counts |= {reason: int((doubt == reason).sum()) for reason in (OLDER, TWICE, PEAK, SLOWER)}
    counts[CACHED] = int(cached.sum())
    return rows.assign(doubt=doubt.astype(str)), {reason: count for reason, count in counts.items() if count}


def _slower_than_more_work(rows: pd.DataFrame, b: str, key: list[str]) -> NDArray[np.bool_]:
    """Against more tokens of the same shape; for experts also against the same tokens on fewer ranks."""
    slow = np.zeros(len(rows), bool)
    for name, growing in ((b, True), ("tp", False), ("ep", False)):
        if name not in rows or (name == b and name == "context"):
            continue  # decode splits the context by heuristics that trade it for parallelism
        others = [column for column in key if column != name]
        codes = codes_of(rows, others)
        size = rows[name].to_numpy(np.float64) * (1.0 if growing else -1.0)
        slow |= rows["seconds"].to_numpy(np.float64) > DISTURBED * _least_beyond(
            codes, size, rows["seconds"].to_numpy(np.float64)
        )
    return slow


def _least_beyond(
    codes: NDArray[np.int64], size: NDArray[np.float64], seconds: NDArray[np.float64]
) -> NDArray[np.float64]:
    """For each row the least time of its group's rows with at least its size."""
    import pandas as pd

    order = np.lexsort((-size, codes))
    least = np.empty(len(seconds))
    least[order] = pd.Series(seconds[order]).groupby(codes[order]).cummin().to_numpy()
    return least
