"""Published tables as `Measurements`: newest versions, one row a run, and what is doubtful said and counted.

Of each framework the newest version is read. Where the newest holds less than half of the rows of the fullest, it is an
addition for new models: then older ones are read too, down to the first full one, and the newest row of a run counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import UsageError, unknown_name
from ...sim.measurement import Measurements
from .columns import TABLES, PublishedTable
from .doubts import add_doubts
from .package import (
    DISTRIBUTION,
    FRAMEWORKS,
    SYSTEMS,
    data_root,
    package_licence,
    package_version,
    published_roof,
    table_files,
)

if TYPE_CHECKING:
    import pandas as pd

_FULL = 0.5


@dataclass(frozen=True)
class Published:
    """One operation of one system: all rows, and per reason how many are doubtful (their `doubt` column is the reason)."""

    measurements: Measurements
    doubts: dict[str, int]
    files: tuple[str, ...]

    @property
    def trusted(self) -> Measurements:
        """Without the doubtful rows."""
        rows = self.measurements.rows
        kept = rows[rows["doubt"] == ""].reset_index(drop=True)
        m = self.measurements
        return Measurements(m.operation, kept, m.source, m.licence, m.environment)


def read_published(
    system: str,
    operations: Sequence[str] | None = None,
    frameworks: Sequence[str] | None = None,
    root: Path | None = None,
) -> dict[str, Published]:
    """Operation → its published rows on that system; an operation without a table is absent.

    Rows have our shape columns, `seconds`, `system`, `framework`, `version`, `kernel`, `dtype` (the package's name of the
    formats) and `doubt` ("" or a reason). Raises `UsageError` on an unknown system or framework, or without the package.
    """
    if system not in SYSTEMS:
        raise unknown_name("system", system, SYSTEMS)
    for framework in frameworks or ():
        if framework not in FRAMEWORKS:
            raise unknown_name("framework", framework, FRAMEWORKS)
    folder = data_root() if root is None else root
    found: dict[str, Published] = {}
    for operation in dict.fromkeys(table.operation for table in TABLES):
        if operations is not None and operation not in operations:
            continue
        parts, files = [], []
        for table in (one for one in TABLES if one.operation == operation):
            for framework in frameworks or FRAMEWORKS:
                for file in _newest(table_files(folder, system, framework, table.file)):
                    parts.append(_rows(file, table, system, framework))
                    files.append(file.relative_to(folder).as_posix())
        if parts:
            found[operation] = _published(operation, parts, tuple(files), system, root is None)
    if not found:
        raise UsageError(
            f"{DISTRIBUTION} holds no table of {', '.join(operations or ('any operation',))} for {system}"
        )
    return found


def _newest(files: list[Path]) -> list[Path]:
    """The newest version, and older ones down to the first that is full."""
    import pyarrow.parquet as pq

    rows = [pq.read_metadata(file).num_rows for file in files]
    kept: list[Path] = []
    for file, count in zip(files, rows, strict=True):
        kept.append(file)
        if count >= _FULL * max(rows):
            break
    return kept


def _rows(file: Path, table: PublishedTable, system: str, framework: str) -> pd.DataFrame:
    import pandas as pd

    raw = pd.read_parquet(file)
    if table.operation in (
        "scan",
        "linear_attention",
    ):  # the short convolution is measured apart: no whole mixer
        raw = raw[~raw["kernel_source"].str.contains("conv1d")].reset_index(drop=True)
    if table.chosen is not None:
        raw = table.chosen(raw).reset_index(drop=True)
    rows = pd.DataFrame(table.rows(raw), index=raw.index)
    rows["seconds"] = raw[table.time] * table.unit_s
    rows["system"] = system
    rows["framework"] = framework
    rows["version"] = file.parent.name
    rows["kernel"] = table.kernel or raw["comm_backend" if "comm_backend" in raw else "kernel_source"]
    return rows


def _published(
    operation: str, parts: list[pd.DataFrame], files: tuple[str, ...], system: str, ours: bool
) -> Published:
    import pandas as pd

    rows = pd.concat(parts, ignore_index=True)
    rows, doubts = add_doubts(operation, rows, published_roof(system))
    measurements = Measurements(
        operation,
        rows,
        f"{DISTRIBUTION} {package_version()}" if ours else DISTRIBUTION,
        package_licence() if ours else "Apache-2.0",
        {"system": system, "hardware": SYSTEMS[system].hardware, "files": list(files)},
    )
    return Published(measurements, doubts, files)
