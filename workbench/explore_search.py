"""Spaces too large for a grid: Optuna's samplers ask, whole batches are costed at once, and the answers are told back.

A sampler with the same seed and the same answers asks the same again, so a resumed search reads its batches from the
folder and goes on where it was stopped.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError
from ..sim.designs import checked
from ..sim.model import ModelSpec
from .explore_costs import Priced, costed
from .explore_space import Space, choices, matched, merged, space_of
from .explore_study import DesignStudy

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int, str], None]


def searched(
    plan: DesignStudy, base: ModelSpec, points: list[Any], machines: dict[str, Priced], folder: Path | None,
    progress: Progress | None,
) -> tuple[Space, dict[str, Any], dict[str, pd.DataFrame]]:  # fmt: skip
    """All designs that the sampler asked for and that can be, each once, with their costs on every machine.

    Several machines: the sampler sees the first one's measures. Raises `UsageError` without Optuna (extra `search`).
    """
    from .explore import kept_part, table_of
    from .explore_answer import values_of

    study = _sampler(plan)
    axes = choices(base, plan.axes)
    places = {name: [str(i) for i in range(len(values))] for name, values in axes.items()}
    samples = int(plan.search.samples or 0)
    found: list[tuple[Space, dict[str, pd.DataFrame]]] = []
    asked = possible = 0
    removed: dict[str, int] = {}
    for number in range(math.ceil(samples / plan.search.batch)):
        trials = [study.ask() for _ in range(min(plan.search.batch, samples - asked))]
        asked += len(trials)
        chosen = [
            [values[int(trial.suggest_categorical(name, places[name]))] for name, values in axes.items()]
            for trial in trials
        ]
        alive, space = _possible(plan, base, points, machines, np.array(chosen, np.float64).T, removed)
        values = np.full((len(trials), len(plan.measures())), np.nan)
        if space is not None:
            possible += len(space.designs)
            costs = {
                name: kept_part(folder, f"{name}-{number:05d}", partial(costed, space.designs, points, priced, plan))
                for name, priced in machines.items()
            }
            found.append((space, costs))
            values[alive] = values_of(plan, table_of(plan, space), next(iter(costs.values())))
        for trial, row in zip(trials, values, strict=True):
            if np.isfinite(row).all():
                study.tell(trial, row.tolist())
            else:
                study.tell(trial, state=_pruned())
        if progress is not None:
            progress(asked, samples, "search")
    if not found:
        raise UsageError(f"none of {asked:,} designs that the search asked for is feasible: {removed}")
    return _joined(found, asked), {"asked": asked, "feasible": possible, "removed": removed}, _costs(found)


def _sampler(plan: DesignStudy) -> Any:
    try:
        optuna: Any = import_module("optuna")
    except ImportError as error:
        raise UsageError(f"[search] needs Optuna: pip install 'codesign-workbench[search]' ({error})") from error
    optuna.logging.set_verbosity(30)  # of Python's logging: warnings; it would print a line a trial
    seed = plan.search.seed
    samplers = {
        "nsga2": lambda: optuna.samplers.NSGAIISampler(seed=seed, population_size=plan.search.batch),
        "tpe": lambda: optuna.samplers.TPESampler(seed=seed, multivariate=False),
        "random": lambda: optuna.samplers.RandomSampler(seed=seed),
    }
    return optuna.create_study(directions=["minimize" for _ in plan.measures()], sampler=samplers[plan.search.kind]())


def _pruned() -> Any:
    from optuna.trial import TrialState

    return TrialState.FAIL


def _possible(
    plan: DesignStudy, base: ModelSpec, points: list[Any], machines: dict[str, Priced], combinations: Any,
    removed: dict[str, int],
) -> tuple[list[int], Space | None]:  # fmt: skip
    """(which of the combinations are designs that can be, those designs): one by one, so that each keeps its trial."""
    alive, spaces = [], []
    limits = plan.checked_limits()
    for place in range(combinations.shape[1]):
        try:
            space = space_of(base, plan.axes, combinations[:, place : place + 1])
            if plan.family is not None and plan.family.match_width:
                space = matched(space, base, plan.family, limits.multiple)
            for priced in machines.values():
                checked(space.designs, limits, points, priced.prices.hardware)
        except UsageError as error:
            reason = str(error).split(":")[1].split(" removes")[0].strip() if ":" in str(error) else str(error)
            removed[reason] = removed.get(reason, 0) + 1
            continue
        alive.append(place)
        spaces.append(space)
    return alive, merged(spaces) if spaces else None


def _joined(found: list[tuple[Space, Any]], asked: int) -> Space:
    space = merged([one for one, _ in found])
    space = space.take(_firsts(found))
    space.combinations = asked
    return space


def _costs(found: list[tuple[Space, dict[str, pd.DataFrame]]]) -> dict[str, pd.DataFrame]:
    import pandas as pd

    rows = _firsts(found)
    return {
        name: pd.concat([costs[name] for _, costs in found], ignore_index=True).iloc[rows].reset_index(drop=True)
        for name in found[0][1]
    }


def _firsts(found: list[tuple[Space, Any]]) -> Any:
    """Of designs asked for more than once, the first."""
    from ..sim.designs.columns import SHAPE

    designs = merged([one for one, _ in found]).designs
    table = np.stack([designs.skeleton, *(getattr(designs, name) for name in SHAPE)])
    return np.sort(np.unique(table, axis=1, return_index=True)[1])
