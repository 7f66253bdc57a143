"""What a calibration's report draws: every measured row beside what the profile says of it, the roof, and the sources.

Here from a folder that `calibrate` wrote; `calibration_published` makes the same of published tables.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..errors import InputFileError, UsageError
from ..files import existing_file, written_whole

if TYPE_CHECKING:
    import pandas as pd

    from ..sim.measurement import Measurements
    from ..sim.profile import Profile, Roof

Floats = NDArray[np.float64]
ROOF_FILE = "roof.toml"
ROOF_SCHEMA = 1
ROOFLINE = 3
"""The index of "roofline" in `sim.profile.HOW`."""


@dataclass(frozen=True)
class OperationPoints:
    """The rows of one operation [R], fitted and held-out ones, and the profile's answer to each."""

    operation: str
    rows: pd.DataFrame
    """Shape columns, formats, framework and kernel: what a row is called."""
    measured_s: Floats
    predicted_s: Floats
    low_s: Floats
    """Of the 90 % band."""
    high_s: Floats
    how: NDArray[np.int8]
    """Index of `sim.profile.HOW`."""
    flops: Floats
    bytes: Floats
    arithmetic: NDArray[np.str_]
    held_out: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    """Held-out rows that errors and coverage are taken over."""
    law: str
    spread: Floats = field(default_factory=lambda: np.zeros(0))
    """Run-to-run spread of each case measured in two rounds or more, (p75 − p25) / median; empty where unknown."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason → held-out rows that are not judged."""
    rows_of: str = ""
    """The operation whose rows these are, asked in another way; empty where they are its own."""

    def label(self, row: int) -> str:
        """`m=16, n=2048, k=2048, weights=bf16, …`; what a row lacks is left out."""
        parts = []
        for name, value in self.rows.iloc[row].items():
            if value is None or value == "" or (isinstance(value, float) and np.isnan(value)):
                continue
            parts.append(f"{name}={int(value) if isinstance(value, float) and value.is_integer() else value}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Source:
    """One file that figures come from, by its SHA-256."""

    what: str
    file: str
    sha256: str
    source: str
    licence: str


@dataclass(frozen=True)
class CalibrationPoints:
    """Everything a report needs of one calibration, or of one check of published tables."""

    system: str
    is_published: bool
    operations: tuple[OperationPoints, ...]
    roof: Roof | None
    """None where the folder does not hold it."""
    roof_source: str
    environment: Mapping[str, Any]
    sources: tuple[Source, ...]


class MeasuredRoof(Protocol):
    """What `kernels.roof.measure_roof` gives."""

    @property
    def bytes_per_s(self) -> float: ...
    @property
    def flops_per_s(self) -> Mapping[str, float]: ...


def save_roof(roof: MeasuredRoof, folder: str | Path) -> Path:
    """Keep the measured roof beside a calibration's tables; returns its file. Raises `RunError` where the disk refuses."""
    from ..sim.measurement import toml_text

    target = Path(folder) / ROOF_FILE
    text = toml_text(
        {"kind": "measured roof", "schema": ROOF_SCHEMA, "bytes_per_s": float(roof.bytes_per_s),
         "flops_per_s": {name: float(value) for name, value in roof.flops_per_s.items()}}
    )  # fmt: skip
    with written_whole(target) as part:
        part.write_text(text, encoding="utf-8")
    return target


def load_roof(folder: str | Path) -> Roof | None:
    """The roof kept in a calibration's folder, None where there is none. Raises `InputFileError` on rates that cannot be."""
    from ..sim.measurement import read_header
    from ..sim.profile import Roof

    where = Path(folder) / ROOF_FILE
    if not where.exists():
        return None
    header = read_header(existing_file(where), "measured roof", ROOF_SCHEMA)
    peaks = header.get("flops_per_s")
    rates = {"bytes_per_s": header.get("bytes_per_s"), **(peaks if isinstance(peaks, dict) else {})}
    if len(rates) < 2:
        raise InputFileError(where, "must give FLOP/s of at least one format", "table flops_per_s")
    for name, rate in rates.items():
        if not isinstance(rate, int | float) or not 0 < rate < np.inf:
            raise InputFileError(where, f"must be a rate above 0, got {rate!r}", f"field {name}")
    return Roof(float(rates.pop("bytes_per_s")), {name: float(rate) for name, rate in rates.items()})


def calibration_points(folder: str | Path) -> CalibrationPoints:
    """The points of a folder that `calibrate` wrote: its profile, a table of each operation in it, its journal, its roof.

    Raises `UsageError` for what is no such folder, `InputFileError` on a missing or damaged file in it.
    """
    from ..sim.measurement import load_measurements, read_header
    from ..sim.profile import load_profile
    from ..sim.profile.store import SCHEMA as PROFILE_SCHEMA

    home = Path(folder)
    header_file = home / "profile.toml"
    if not header_file.is_file():
        raise UsageError(
            f"{home} holds no profile.toml: give the folder that workbench calibrate --out wrote"
        )
    profile = load_profile(header_file)
    if "hardware" in profile.about.get("environment", {}):
        raise UsageError(
            f"{header_file} was fitted to published tables of {profile.system}, whose rows are not beside it: the report of "
            f"workbench profile check --system {profile.system} shows its error"
        )
    header = read_header(header_file, "profile", PROFILE_SCHEMA)
    spreads = _spreads(home / "journal.jsonl")
    operations, sources = [], [_own_source("profile", header_file, header)]
    for name in profile.laws:
        where = home / f"{name}.toml"
        table = load_measurements(where)
        if "held_out" not in table.rows:
            raise InputFileError(where, "its table lacks the column held_out: no calibration wrote it")
        held = table.rows["held_out"].to_numpy(bool)
        points = points_of(profile, table, held, spread=np.array(spreads.get(name, []), np.float64))
        operations.append(points)
        sources.append(_own_source(name, where, read_header(where, "measurements", 1)))
    return CalibrationPoints(
        profile.system, False, tuple(operations), load_roof(home), "measured beside the kernels, same threads",
        dict(profile.about.get("environment", {})), tuple(sources),
    )  # fmt: skip


def _own_source(what: str, file: Path, header: Mapping[str, Any]) -> Source:
    made = "fitted to the tables below" if what == "profile" else str(header.get("source", "unknown"))
    licence = "own measurement" if what == "profile" else str(header.get("licence", "unknown"))
    table = header["table"]
    return Source(what, str(table["file"]), str(table["sha256"]), made, licence)


def _spreads(journal: Path) -> dict[str, list[float]]:
    """Operation → the run-to-run spread of each of its cases; nothing where the journal is not there any more."""
    from .calibration_journal import Visit
    from .calibration_result import run_spread

    if not journal.is_file():
        return {}
    visits: dict[str, list[Visit]] = defaultdict(list)
    content = journal.read_bytes()
    whole = content[: content.rfind(b"\n") + 1].decode("utf-8", errors="replace")
    for number, line in enumerate(whole.splitlines()[1:], start=2):
        try:
            row = json.loads(line)
            if "skipped" in row:
                continue
            visit = Visit(
                str(row["key"]), int(row["round"]), "", tuple(float(one) for one in row["samples_s"])
            )
        except (ValueError, KeyError, TypeError) as error:
            raise InputFileError(journal, f"is no visit: {error!r}", f"line {number}") from error
        visits[visit.key].append(visit)
    found: dict[str, list[float]] = defaultdict(list)
    for key, those in visits.items():
        spread = run_spread(those)
        if spread is not None:
            found[key.split(" ", 1)[0]].append(spread)
    return found


def points_of(
    profile: Profile, table: Measurements, held: NDArray[np.bool_], *, new_model: bool | None = None,
    spread: Floats | None = None,
) -> OperationPoints:  # fmt: skip
    """The profile asked about every row of a table; rows it cannot be asked about are held out and not judged."""
    from ..sim.measurement import operations_of
    from ..sim.profile.axes import axes_of

    rows, count = table.rows.reset_index(drop=True), len(table)
    predicted, low, high, flops, moved = (np.full(count, np.nan) for _ in range(5))
    how, arithmetic = np.full(count, ROOFLINE, np.int8), np.full(count, "", object)
    sizes, names = axes_of(table.operation).defaults, [n for n in ("framework", "kernel") if n in rows]
    given = rows[[c for c in rows if c in sizes and c != "window"]].notna().to_numpy()
    stated = given @ (1 << np.arange(given.shape[1], dtype=np.int64))  # which sizes a row has, as bits
    for key, where in rows.groupby([*names, stated], sort=True).indices.items():
        asked = dict(zip(names, key if isinstance(key, tuple) else (), strict=False))
        # Sizes that these rows do not have, such as a latent width, are left out; no window is a window of 0.
        part = rows.iloc[where].dropna(axis="columns", how="all").fillna({"window": 0})
        for index, operation in operations_of(table.operation, part[[c for c in part if c in sizes]]):
            answer, place = profile.query(operation, **asked, new_model=new_model), np.asarray(where)[index]
            predicted[place], low[place], high[place] = answer.seconds, answer.low, answer.high
            how[place], arithmetic[place] = answer.how, operation.arithmetic
            flops[place], moved[place] = operation.flops, operation.bytes
    shown = [c for c in rows if c in sizes or c in ("framework", "kernel", "dtype")]
    return OperationPoints(
        table.operation, rows[shown], table.seconds, predicted, low, high, how, flops, moved,
        arithmetic.astype(np.str_), held, held & np.isfinite(predicted), profile.laws[table.operation].chosen,
        np.zeros(0) if spread is None else spread,
    )  # fmt: skip
