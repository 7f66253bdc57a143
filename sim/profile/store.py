"""A profile on disk: a TOML header for people, and one Parquet table of all arrays with its SHA-256 in the header.

The table has a row per array: its name, number type, shape, bytes (little-endian). Loading needs no fitting library.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...errors import InputFileError, UsageError
from ...files import existing_file, sha256_of
from ..measurement import header_path, read_header, save_table
from .axes import axes_of
from .grids import Grid
from .law import GroupLaw, OperationLaw
from .profile import Profile
from .roof import Roof
from .surface import Surface
from .trees import Trees

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

SCHEMA = 2
_TREES = ("trees", "model_trees")


def save_profile(profile: Profile, path: str | Path) -> Path:
    """Write header and table; an older profile of that name goes only when the new one is whole. Returns the header."""
    import pandas as pd

    arrays: list[tuple[str, NDArray[Any]]] = []
    operations = {name: _described(law, arrays) for name, law in profile.laws.items()}
    header = {
        "kind": "profile", "schema": SCHEMA, "system": profile.system,
        "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "roof": None if profile.roof is None else profile.roof.to_dict(), **profile.about, "operations": operations,
    }  # fmt: skip
    rows = pd.DataFrame({
        "name": [name for name, _ in arrays],
        "dtype": [array.dtype.str for _, array in arrays],
        "shape": [",".join(map(str, array.shape)) for _, array in arrays],
        "data": [array.tobytes() for _, array in arrays],
    })  # fmt: skip
    return save_table(path, rows, header)


def load_profile(path: str | Path) -> Profile:
    """Read what `save_profile` wrote. Raises `InputFileError` on another schema, a changed table, or impossible times."""
    where = existing_file(header_path(path))
    header = read_header(where, "profile", SCHEMA)
    try:
        arrays = _arrays(where, header["table"])
        roof = header.get("roof")
        laws = {name: _law(name, told, arrays) for name, told in header["operations"].items()}
        about: dict[str, Any] = {key: header[key] for key in ("measured", "environment") if key in header}
        profile = Profile(str(header["system"]), laws, None if roof is None else Roof(**roof), about)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UsageError):
            raise
        raise InputFileError(where, f"is incomplete or damaged: {error!r}") from error
    for name, law in laws.items():
        for group in law.groups:
            if np.isinf(group.grid.ratio).any() or not np.isfinite(group.grid.b).all():
                raise InputFileError(where, "holds times that are zero or not finite", f"operation {name}")
    return profile


def _arrays(where: Path, table: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    import pyarrow.parquet as pq

    name = str(table["file"])
    if Path(name).name != name:
        raise InputFileError(where, f"must be a file beside the header, got {name!r}", "field table.file")
    file = existing_file(where.with_name(name))
    if sha256_of(file) != table["sha256"]:
        raise InputFileError(
            file, f"its SHA-256 is not the one that {where.name} states: it was changed or is torn"
        )
    read = pq.read_table(file).to_pydict()
    found = {}
    for key, dtype, shape, data in zip(read["name"], read["dtype"], read["shape"], read["data"], strict=True):
        kind = np.dtype(dtype)
        if kind.kind not in "iuf":
            raise InputFileError(file, f"array {key} is of type {dtype!r}, must be numbers")
        found[key] = np.frombuffer(data, kind).reshape([int(n) for n in shape.split(",") if n])
    return found


def _described(law: OperationLaw, arrays: list[tuple[str, NDArray[Any]]]) -> dict[str, Any]:
    def keep(name: str, array: ArrayLike, kind: str = "<f8") -> None:
        arrays.append((f"{law.operation}/{name}", np.ascontiguousarray(array, kind)))

    for name in _TREES:
        trees = getattr(law, name)
        if trees is not None:
            for part in ("roots", "feature", "left", "right"):
                keep(f"{name}/{part}", getattr(trees, part), "<i4")
            keep(f"{name}/threshold", trees.threshold)
            keep(f"{name}/value", trees.value, "<f4")
    groups = {}
    for number, group in enumerate(law.groups):
        grid, where = group.grid, f"{number}"
        keep(f"{where}/shapes", grid.shapes)
        keep(f"{where}/b", grid.b)
        keep(
            f"{where}/ratio", grid.ratio, "<f4"
        )  # a ten-millionth of a time: far below what a clock resolves
        keep(f"{where}/scale", group.scale, "<f4")
        for kind, surface in (("surface", group.surface), ("model", group.model_surface)):
            if surface is not None:
                keep(f"{where}/{kind}/mean", surface.mean)
                keep(f"{where}/{kind}/weights", surface.weights, "<f4")
        if group.model_surface is not None:
            keep(f"{where}/model_scale", group.model_scale)
        groups[where] = {
            "band": group.band, "lengths": group.surface.lengths.tolist(),
            "noise": group.surface.noise, "a": list(grid.a), "physical": grid.physical,
            "model_lengths": None if group.model_surface is None else group.model_surface.lengths.tolist(),
            "model_share": group.model_share, "key": dict(grid.group),
        }  # fmt: skip
    return {
        "law": law.chosen, "held_out_error": law.errors, "interpolation": law.interpolation,
        "interpolation_error": law.interpolation_errors, "interpolation_band": law.interpolation_band,
        "model_band": law.model_band, "group": groups,
    }  # fmt: skip


def _law(name: str, told: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> OperationLaw:
    groups = list(_group_laws(name, told, arrays))
    trees = {kind: _trees(f"{name}/{kind}", arrays) for kind in _TREES}
    return OperationLaw(
        name, groups, str(told["law"]), dict(told.get("held_out_error", {})), trees["trees"], trees["model_trees"],
        float(told["model_band"]), int(told["interpolation"]),
        dict(told.get("interpolation_error", {})), float(told["interpolation_band"]),
    )  # fmt: skip


def _group_laws(name: str, told: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Iterator[GroupLaw]:
    axes = axes_of(name)
    for number, group in told["group"].items():
        here = f"{name}/{number}"
        physical = group.get("physical")
        grid = Grid(axes, group.get("key", {}), arrays[f"{here}/shapes"], tuple(group["a"]), arrays[f"{here}/b"],
                    arrays[f"{here}/ratio"].astype(np.float64), None if physical is None else tuple(physical))  # fmt: skip
        surfaces: dict[str, Surface | None] = {"surface": None, "model": None}
        for kind, lengths in (("surface", group["lengths"]), ("model", group.get("model_lengths"))):
            if lengths is not None:
                weights = arrays[f"{here}/{kind}/weights"].astype(np.float64)
                surfaces[kind] = Surface(grid.coords, arrays[f"{here}/{kind}/mean"], weights, np.array(lengths, np.float64),
                                         float(group.get("noise", 0.0)), np.zeros((0, 0)))  # fmt: skip
        first = surfaces["surface"]
        assert first is not None
        yield GroupLaw(grid, first, arrays[f"{here}/scale"].astype(np.float64), float(group["band"]), surfaces["model"],
                       arrays.get(f"{here}/model_scale", np.zeros(0)), float(group["model_share"]))  # fmt: skip


def _trees(where: str, arrays: Mapping[str, NDArray[Any]]) -> Trees | None:
    if f"{where}/roots" not in arrays:
        return None
    parts = ("roots", "feature", "threshold", "left", "right", "value")
    found = {part: arrays[f"{where}/{part}"] for part in parts}
    return Trees(**{**found, "value": found["value"].astype(np.float64)})
