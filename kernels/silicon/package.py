"""Where the data package lies, what it holds, and the machines it measured. The package is found, never imported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import metadata, util
from pathlib import Path
from types import MappingProxyType

from ...errors import UsageError, unknown_name
from ...sim.catalog import load_hardware
from ...sim.profile.roof import Roof, roof_of

DISTRIBUTION = "aiconfigurator-core"
FRAMEWORKS = ("vllm", "sglang", "trtllm")


@dataclass(frozen=True, slots=True)
class System:
    """A measured machine: the hardware sheet that bounds it, its streaming multiprocessors, corrections of the sheet."""

    hardware: str
    processors: int
    scale: float = 1.0
    """Peaks over those of the sheet: GB200's superchip runs its B200 at 2.5 instead of 2.25 PFLOP/s of dense bf16."""


SYSTEMS: Mapping[str, System] = MappingProxyType(
    {  # streaming multiprocessors: NVIDIA architecture whitepapers of Ampere, Ada, Hopper, Blackwell
        "a100_sxm": System("a100-80gb-sxm", 108),
        "h100_sxm": System("h100-sxm", 132),
        "h200_sxm": System("h200-sxm", 132),
        "b200_sxm": System("b200", 148),
        "gb200": System("b200", 152, 2.5 / 2.25),
        "l40s": System("l40s", 142),
    }
)


def data_root() -> Path:
    """The package's folder `systems/data`. Raises `UsageError` naming the extra where it is not installed."""
    found = util.find_spec("aiconfigurator_core")
    if found is None or not found.submodule_search_locations:
        raise UsageError(f"{DISTRIBUTION} is not installed: pip install 'codesign-workbench[silicon]'")
    root = Path(next(iter(found.submodule_search_locations))) / "systems" / "data"
    if not root.is_dir():
        raise UsageError(
            f"{DISTRIBUTION} at {root.parent.parent} has no folder systems/data: another layout than 0.12"
        )
    return root


def package_version() -> str:
    return metadata.version(DISTRIBUTION)


def package_licence() -> str:
    """As the package's own metadata state it."""
    about = metadata.metadata(DISTRIBUTION).json
    return str(about.get("license_expression") or about.get("license") or "unknown")


def systems() -> tuple[str, ...]:
    """Systems that the installed package holds and that have a hardware sheet here."""
    root = data_root()
    return tuple(name for name in SYSTEMS if (root / name).is_dir())


def published_roof(system: str) -> Roof:
    """The roofs of a measured system. Raises `UsageError` on an unknown one."""
    if system not in SYSTEMS:
        raise unknown_name("system", system, SYSTEMS)
    known = SYSTEMS[system]
    roof = roof_of(load_hardware(known.hardware), known.processors)
    return replace(roof, peaks={name: peak * known.scale for name, peak in roof.peaks.items()})


def table_files(root: Path, system: str, framework: str, table: str) -> list[Path]:
    """Every version of one table of one framework, newest first."""
    files = list((root / system).glob(f"*/{framework}/*/{table}.parquet"))
    return sorted(files, key=lambda file: version_key(file.parent.name), reverse=True)


def version_key(version: str) -> tuple[tuple[int, int], ...]:
    """Sorts 1.3.0rc20 after 1.3.0rc9, and a release after its candidates."""
    parts = re.findall(r"(rc|post|dev)?(\d+)", version)
    rank = {"dev": -2, "rc": -1, "": 0, "post": 1}
    key = [(rank[kind], int(digits)) for kind, digits in parts]
    return (*key, (0, 0))
