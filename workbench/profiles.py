"""Profiles by name: the catalog's, and any that a calibration wrote; what they hold, and how two of them differ."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UsageError, unknown_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..sim.hardware import HardwareSpec
    from ..sim.profile import Profile


def load_named_profile(name_or_path: str | Path) -> Profile:
    """A profile of the catalog by name, else a file that `calibrate` wrote (its `.toml`, or the folder it lies in).

    Raises `UsageError` naming the nearest known name, `InputFileError` on a file that is no profile.
    """
    from ..sim.catalog import profile_names, profile_path
    from ..sim.profile import load_profile

    text = str(name_or_path)
    if text.lower() in profile_names():
        return load_profile(profile_path(text.lower()))
    path = Path(text)
    if path.is_dir():
        path = path / "profile.toml"
    if path.exists() or path.suffix == ".toml":
        return load_profile(path)
    raise unknown_name("profile", text, profile_names())


def mismatches(profile: Profile, device: HardwareSpec) -> list[str]:
    """What a user should know before a profile is used with a hardware sheet: that it is of another machine."""
    about = profile.about.get("environment", {})
    sheet = about.get("hardware")
    if sheet is not None:
        if sheet == device.name:
            return []
        return [f"the profile was measured on {sheet} and the hardware sheet is {device.name}: times mix two machines"]
    cpu = str(about.get("cpu", profile.system))
    if device.name.startswith("cpu") or device.name == profile.system:
        here = _this_cpu()
        if here is None or here == cpu:
            return []
        return [f"the profile was measured on {cpu!r}, and this machine is {here!r}"]
    return [f"the profile was measured on {cpu!r} and the hardware sheet is {device.name}: times mix two machines"]


def _this_cpu() -> str | None:
    from ..kernels.environment import environment

    cpu = environment(1).to_dict().get("cpu")
    return None if cpu is None else str(cpu)


def profile_facts(profile: Profile) -> dict[str, Any]:
    """What a profile holds: per operation its law, shapes, rows, error on held-out shapes, source and licence."""
    operations = []
    for name, law in profile.laws.items():
        measured = profile.about.get("measured", {}).get(name, {})
        cells = sum(int(np.isfinite(group.grid.ratio).sum()) for group in law.groups)
        operations.append(
            {
                "operation": name,
                "law": law.chosen,
                "groups": [dict(group.grid.group) for group in law.groups],
                "shapes": sum(len(group.grid.shapes) for group in law.groups),
                "rows": cells,
                "inner_error": {key: float(value) for key, value in law.errors.items()},
                "source": measured.get("source"),
                "licence": measured.get("licence"),
            }
        )
    return {"system": profile.system, "environment": profile.about.get("environment", {}), "operations": operations}


def profile_rows() -> list[dict[str, str]]:
    """The catalog's profiles, as a table for people."""
    from ..sim.catalog import profile_names

    rows = []
    for name in profile_names():
        facts = profile_facts(load_named_profile(name))
        for one in facts["operations"]:
            rows.append(
                {
                    "profile": name, "operation": one["operation"], "shapes": f"{one['shapes']:,}",
                    "measured points": f"{one['rows']:,}", "law": one["law"], "source": str(one["source"]),
                    "licence": str(one["licence"]),
                }
            )  # fmt: skip
    return rows


@dataclass(frozen=True, slots=True)
class Difference:
    """One operation that two profiles hold: how much slower the second is over the shapes that both measured."""

    operation: str
    shared_points: int
    median_ratio: float
    p10_ratio: float
    p90_ratio: float


def compare_profiles(first: str | Path, second: str | Path) -> list[Difference]:
    """Second ÷ first, operation by operation, over grid points that both measured in the same group of formats.

    Raises `UsageError` where they share no operation.
    """
    one, two = load_named_profile(first), load_named_profile(second)
    shared = [name for name in one.laws if name in two.laws]
    if not shared:
        raise UsageError(
            f"the profiles share no operation: {', '.join(one.laws)} against {', '.join(two.laws)}"
        )
    found = []
    for name in shared:
        here, there = _points(one, name), _points(two, name)
        ratios = np.array([there[key] / here[key] for key in here.keys() & there.keys()])
        if len(ratios):
            low, middle, high = np.quantile(ratios, [0.1, 0.5, 0.9])
            found.append(Difference(name, len(ratios), float(middle), float(low), float(high)))
    return found


def _points(profile: Profile, operation: str) -> dict[Any, float]:
    """Measured seconds by (formats, shape, point of the grid); where two kernels measured one point, the faster."""
    from ..sim.profile.grids import UNKNOWN_ROOF

    points: dict[Any, float] = {}
    for group in profile.laws[operation].groups:
        grid = group.grid
        formats = tuple(sorted((k, str(v)) for k, v in grid.group.items() if k not in ("framework", "kernel")))
        seconds = np.exp(grid.ratio) * grid.base_at_cells(grid.shapes, profile.roof or UNKNOWN_ROOF)
        places = [(a, float(b)) for a in grid.a for b in grid.b]
        for shape, row in zip(grid.shapes.tolist(), seconds, strict=True):
            for place, value in zip(places, row, strict=True):
                if np.isfinite(value):
                    key = (formats, tuple(shape), place)
                    points[key] = min(points.get(key, np.inf), float(value))
    return points


def calibrate_from_tables(
    system: str,
    *,
    out: str | Path,
    framework: str | None = None,
    seed: int = 0,
    threads: int = 2,
    progress: Callable[[str], None] | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Fit a profile to the published measurements of a system and save it; returns its header and its facts.

    Rows with a doubt (contradicting, faster than the roof) are left out and counted. Needs the extra `silicon`.
    Raises `UsageError` on an unknown system or framework.
    """
    from dataclasses import replace

    from ..kernels.silicon import published_roof, read_published
    from ..sim.profile import fit_profile, save_profile

    published = read_published(system, frameworks=None if framework is None else (framework,))
    tables, left_out = [], {}
    for name, one in published.items():
        doubt = one.measurements.rows["doubt"].to_numpy(str)
        left_out[name] = {reason: int((doubt == reason).sum()) for reason in np.unique(doubt) if reason}
        tables.append(replace(one.measurements, rows=one.measurements.rows[doubt == ""].reset_index(drop=True)))
    profile = fit_profile(
        tables, system=system, roof=published_roof(system), seed=seed, threads=threads, progress=progress
    )
    target = Path(out)
    if target.suffix != ".toml":
        target = target / "profile.toml"
    target.parent.mkdir(parents=True, exist_ok=True)
    header = save_profile(profile, target.with_suffix(""))
    return header, {**profile_facts(profile), "left_out": left_out}
