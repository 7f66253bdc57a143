"""The study `explore`: every design of a study costed at its operating points on its machines, and the best of them.

study ─► space ─► constraints ─► blocks of designs ─► costs (a file a block, resumable) ─► table ─► fronts, knee, choices
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputFileError, RunError, UsageError
from ..files import existing_file, sha256_of, written_whole
from ..sim.catalog import load_model
from ..sim.designs import checked
from ..sim.designs.columns import design_name
from .explore_answer import Front, fronts_of, spec_of
from .explore_costs import Priced, costed, load_of, prices_of
from .explore_space import Space, family_values, grid_space, matched, named_space
from .explore_study import DesignStudy, load_design_study

if TYPE_CHECKING:
    import pandas as pd

    from ..sim.designs import OperatingPoint
    from ..sim.model import ModelSpec
    from .train_result import TrainedDesigns

Progress = Callable[[int, int, str], None]
SCHEMA, KIND = 1, "explore"
_BLOCK = 8192  # designs a file: some seconds of work, which is what a kill loses


@dataclass
class ExploreResult:
    """All designs with their costs, one row each; fronts and choices of each machine."""

    study: DesignStudy
    base: ModelSpec
    designs: pd.DataFrame
    """Shape and what follows from it; `costs` join by row."""
    costs: dict[str, pd.DataFrame]
    """Machine → one row a design; columns MEASURE:POINT, see `explore_costs.py`."""
    fronts: dict[str, Front | None]
    """None where no design has a value of every measure."""
    skeletons: tuple[ModelSpec, ...]
    counts: dict[str, Any]
    provenance: dict[str, list[dict[str, object]]]
    seconds: float
    warnings: tuple[str, ...] = ()
    folder: Path | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    points: tuple[OperatingPoint, ...] = ()
    """As they were costed: a load given as a trace is the power law that stands for it."""

    def spec(self, row: int) -> ModelSpec:
        """The design of a row as a model."""
        return spec_of(self.base, self.skeletons, self.designs.iloc[row])

    def to_dict(self) -> dict[str, Any]:
        """Counts, and of each machine the front with the shape and values of every design on it. Unknown is absent."""
        machines = {}
        for name, front in self.fronts.items():
            found = [] if front is None else [self._record(name, row) for row in front.rows]
            machines[name] = {"front": found, **({} if front is None else {"knee": front.knee, "best": front.best})}
        return {"name": self.study.name, "counts": self.counts, "seconds": self.seconds, "machines": machines,
                "warnings": list(self.warnings)}  # fmt: skip

    def _record(self, machine: str, row: int) -> dict[str, Any]:
        values = {**self.designs.iloc[row].to_dict(), **self.costs[machine].iloc[row].to_dict()}
        return {"row": row} | {
            str(key): value.item() if hasattr(value, "item") else value
            for key, value in values.items()
            if key != "skeleton" and not (isinstance(value, float) and np.isnan(value))
        }


def explore(
    study: DesignStudy | str | Path,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> ExploreResult:
    """Cost every design of a study and find the best. `out` keeps the tables, and what is done if it is stopped.

    Raises `UsageError` for a study that cannot be, with the constraint or the pair of them that leaves no design.
    """
    started = time.monotonic()
    source = Path(study) if isinstance(study, (str, Path)) else None
    plan = load_design_study(study) if isinstance(study, (str, Path)) else study
    named = [(one, load_model(_beside(one.model, source))) for one in plan.models]
    base = named[0][1] if plan.base is None else load_model(_beside(plan.base, source))
    for model in (base, *(model for _, model in named)):
        if not model.is_moe:
            raise UsageError(f"model {model.name} is dense: there is no mixture to redesign")
    machines = {machine.name: prices_of(machine) for machine in plan.machines}
    folder = None if out is None else _folder(Path(out), plan, resume)
    loads = {point.name: load_of(point, source) for point in plan.points}
    points = [point.operating_point(loads[point.name]) for point in plan.points]
    if plan.search.kind != "grid":
        from .explore_search import searched

        space, told, costs = searched(plan, base, points, machines, folder, progress)
    else:
        space, told = _feasible(plan, named_space(named) if named else grid_space(base, plan.axes), base, points, machines)
        costs = {
            name: _by_block(plan, space, points, priced, folder, name, progress)
            for name, priced in machines.items()
        }
    table = table_of(plan, space)
    kept = _in_family(plan, base, points, table, costs, machines)
    table, space = table[kept].reset_index(drop=True), space.take(np.flatnonzero(kept))
    costs = {name: found[kept].reset_index(drop=True) for name, found in costs.items()}
    if not len(table):
        raise UsageError(
            f"no design of {len(kept):,} is within {100 * plan.family.tolerance:g} % of the base in {plan.family.iso}"  # type: ignore[union-attr]
        )
    fronts = {name: fronts_of(plan, table, found) for name, found in costs.items()}
    counts = {"combinations": space.combinations, **told, "costed": len(kept), "designs": len(table)}
    result = ExploreResult(
        plan, base, table, costs, fronts, space.designs.skeletons, counts,
        {name: one.prices.provenance() for name, one in machines.items()}, time.monotonic() - started,
        tuple(warning for one in machines.values() for warning in one.warnings), folder,
        {name: one.facts for name, one in machines.items()}, tuple(points),
    )  # fmt: skip
    if folder is not None:
        _save(result, folder)
    return result


def explore_train(
    study: DesignStudy | str | Path,
    *,
    out: str | Path,
    resume: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> TrainedDesigns:
    """Train the small models that a study's [train] names, every seed of each once: losses, intervals, comparisons in pairs.

    `out` keeps journal and checkpoints. Raises `UsageError` for a study without [train], or shapes that cannot be.
    """
    from .train_designs import train_designs

    plan = load_design_study(study) if isinstance(study, (str, Path)) else study
    if plan.train is None:
        raise UsageError(f"study {plan.name} has no [train]: write how many tokens and which seeds, see docs/explore.md")
    return train_designs(
        plan.train.models(), tokens=plan.train.tokens, seeds=plan.train.seeds, out=Path(out), resume=resume,
        workers=workers, progress=progress,
    )  # fmt: skip


def _beside(name: str, source: Path | None) -> str:
    """A model's file is looked for beside the study."""
    if source is not None and name.endswith(".json") and not Path(name).is_absolute():
        return str(source.parent / name)
    return name


def _feasible(
    plan: DesignStudy, space: Space, base: ModelSpec, points: list[Any], machines: dict[str, Priced]
) -> tuple[Space, dict[str, Any]]:
    limits = plan.checked_limits()
    if plan.family is not None and plan.family.match_width:
        space = matched(space, base, plan.family, limits.multiple)
    feasible = np.zeros(len(space.designs), np.bool_)
    removed: dict[str, int] = {}
    errors = []
    for name, priced in machines.items():  # a design is kept that fits on one machine at least
        try:
            found = checked(space.designs, limits, points, priced.prices.hardware)
        except UsageError as error:
            errors.append(f"{name}: {error}" if len(machines) > 1 else str(error))
            continue
        feasible |= found.feasible
        own = f" of {priced.prices.hardware.name}" if len(machines) > 1 else ""
        removed |= {reason + own * (reason == "memory"): count for reason, count in found.removed.items()}
    if not feasible.any():
        raise UsageError("; ".join(errors))
    return space.take(np.flatnonzero(feasible)), {"left_out": space.left_out, "removed": removed}


def _by_block(
    plan: DesignStudy, space: Space, points: list[Any], priced: Priced, folder: Path | None, machine: str,
    progress: Progress | None,
) -> pd.DataFrame:  # fmt: skip
    import pandas as pd

    parts, count = [], len(space.designs)
    for first in range(0, max(count, 1), _BLOCK):
        designs = space.designs.take(np.arange(first, min(first + _BLOCK, count)))
        parts.append(kept_part(folder, f"{machine}-{first // _BLOCK:05d}", partial(costed, designs, points, priced, plan)))
        if progress is not None:
            progress(min(first + _BLOCK, count), count, machine)
    return pd.concat(parts, ignore_index=True)


def kept_part(folder: Path | None, name: str, make: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """The part of that name, made only if the folder does not hold it yet."""
    if folder is None:
        return make()
    path = folder / "parts" / f"{name}.parquet"
    found = _readable(path) if path.exists() else None
    if found is not None:
        return found
    table = make()
    with written_whole(path) as part:
        table.to_parquet(part, index=False)
    return table


def _readable(path: Path) -> pd.DataFrame | None:
    """A part that was written; None for one that something else broke, which is then made again."""
    import pandas as pd
    import pyarrow

    try:
        return pd.read_parquet(path)
    except (pyarrow.ArrowException, OSError, ValueError):
        return None


def table_of(plan: DesignStudy, space: Space) -> pd.DataFrame:
    import pandas as pd

    from .explore_costs import accuracy_columns

    designs = space.designs
    columns = designs.columns()
    shapes = ("experts", "top_k", "width", "latent", "shared")
    names = [
        design_name(dict(zip(shapes, row, strict=True))) for row in np.stack([columns[c] for c in shapes], axis=1).tolist()
    ]
    several = len(designs.skeletons) > 1
    around = [f"d{model.hidden}-L{len(model.layers)}-" if several else "" for model in designs.skeletons]
    whole = [around[s] + name for s, name in zip(designs.skeleton.tolist(), names, strict=True)]
    table = pd.DataFrame(
        {
            "design": whole if space.names is None else space.names,
            "transform": space.transform,
            "alpha": space.alpha,
            "skeleton": designs.skeleton,
            **columns,
        }
    )
    for name, values in accuracy_columns(plan, designs).items():
        table[name] = values
    return table


def _in_family(
    plan: DesignStudy, base: ModelSpec, points: list[Any], table: pd.DataFrame, costs: dict[str, pd.DataFrame],
    machines: dict[str, Priced],
) -> Any:  # fmt: skip
    """[R] whether a design equals the base in the family's quantity (on one machine at least, for latency)."""
    from ..sim.designs import Designs

    family = plan.family
    if family is None:
        return np.ones(len(table), np.bool_)
    if family.iso in ("flops", "params", "active_params"):
        target = float(family_values(Designs.of([base]), family)[0])
        column = {"flops": "active_flops_per_token", "params": "total_params", "active_params": "active_params"}
        return np.abs(table[column[family.iso]].to_numpy() / target - 1.0) <= family.tolerance
    kept = np.zeros(len(table), np.bool_)
    for name, priced in machines.items():
        column_name = f"{family.iso}:{family.point}"
        target = float(costed(Designs.of([base]), points, priced, plan)[column_name].iloc[0])
        kept |= np.abs(costs[name][column_name].to_numpy() / target - 1.0) <= family.tolerance
    return kept


def _folder(folder: Path, plan: DesignStudy, resume: bool) -> Path:
    """The run's folder, with the study's hash. Raises `UsageError` for one that holds another study, or this one already."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"cannot write {folder}: it is a file, expected a directory")
    try:
        (folder / "parts").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}") from error
    from .. import __version__

    facts = {"kind": KIND, "schema": SCHEMA, "study": plan.content_hash(), "version": __version__, **_digests(plan)}
    path = folder / "study.json"
    if path.exists():
        if not resume:
            raise UsageError(f"{folder} holds an exploration already: --resume goes on with it, another --out starts afresh")
        before = _read(path)
        changed = [name for name in facts if before.get(name) != facts[name]]
        if changed:
            raise UsageError(f"{folder} was begun with another {', '.join(changed)}: start afresh with another --out")
    with written_whole(path) as part:
        part.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    return folder


def _digests(plan: DesignStudy) -> dict[str, str]:
    from .sweep_inputs import input_path

    named = [("hardware", machine.hardware) for machine in plan.machines]
    named += [("profile", machine.profile) for machine in plan.machines if machine.profile is not None]
    return {f"{kind} {name}": sha256_of(input_path(kind, name, ".")) for kind, name in named}


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(existing_file(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputFileError(path, f"is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("kind") != KIND or found.get("schema") != SCHEMA:
        raise InputFileError(path, f"is no exploration of schema {SCHEMA}")
    return found


def _save(result: ExploreResult, folder: Path) -> None:
    """The tables; `run.json` comes last and says that they are whole."""
    for name, table in (("designs", result.designs), *((f"costs-{name}", found) for name, found in result.costs.items())):
        with written_whole(folder / f"{name}.parquet") as part:
            table.to_parquet(part, index=False)
    run = {
        "kind": KIND, "schema": SCHEMA, "name": result.study.name, "about": result.study.about,
        "study_as_read": result.study.model_dump(mode="json"), "counts": result.counts,
        "fronts": {name: None if found is None else found.to_dict() for name, found in result.fronts.items()},
        "provenance": result.provenance, "warnings": list(result.warnings),
    }  # fmt: skip
    with written_whole(folder / "run.json") as part:
        part.write_text(json.dumps(run, ensure_ascii=False, allow_nan=False, indent=1) + "\n", encoding="utf-8")

