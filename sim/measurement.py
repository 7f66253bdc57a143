"""Measurements: what ran, its shape, how long it took, and in what circumstances. One operation a table.

On disk: a TOML header `NAME.toml` for people, naming its table `NAME-HASH.parquet` with its SHA-256. The header is
replaced last and in one step, so an interrupted save leaves the old pair intact.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputFileError, UsageError
from ..files import existing_file, sha256_of, written_whole
from .ops import operation_entry

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = 1
ABOUT = ("system", "framework", "version", "kernel")
"""Text columns beside the shape: which machine, which software, which kernel. May be missing."""
TIMES = ("seconds", "first_call_s", "samples")


@dataclass(frozen=True)
class Measurements:
    """Rows of one operation.

    `rows` has the operation's fields as columns (a field with a default may be missing: then the default holds),
    `seconds` (the median of the samples, or the published figure), and may have `samples` (raw seconds, a list),
    `first_call_s`, and the columns of `ABOUT`. Raises `UsageError` naming row and value where `seconds` is missing, zero,
    negative or not finite, or a needed column is absent.
    """

    operation: str
    rows: pd.DataFrame
    source: str
    licence: str = "own measurement"
    environment: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        entry = operation_entry(self.operation)
        needed = [
            f.name for f in fields(entry.operation) if f.default is MISSING and f.default_factory is MISSING
        ]
        for column in (*needed, "seconds"):
            if column not in self.rows.columns:
                have = ", ".join(map(str, self.rows.columns))
                raise UsageError(
                    f"measurements of {self.operation} lack the column {column!r}; they have {have}"
                )
        seconds = self.seconds
        bad = np.flatnonzero(~(np.isfinite(seconds) & (seconds > 0.0)))
        if len(bad):
            raise UsageError(
                f"measurements of {self.operation}: row {bad[0]} has seconds = {seconds[bad[0]]}, must be finite and "
                f"above 0 ({len(bad)} of {len(seconds)} rows are wrong)"
            )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def seconds(self) -> NDArray[np.float64]:
        return self.rows["seconds"].to_numpy(np.float64)

    @property
    def shape_columns(self) -> tuple[str, ...]:
        """The operation's fields that this table states."""
        return tuple(name for name in operation_entry(self.operation).shape if name in self.rows.columns)

    def operations(self) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """The rows as operations over arrays, one for each combination of formats: (row numbers, operation)."""
        yield from operations_of(self.operation, self.rows)

    def save(self, path: str | Path) -> Path:
        """Write header and table. Returns the header's path. Raises `RunError` where the disk refuses."""
        header = {
            "kind": "measurements",
            "schema": SCHEMA,
            "operation": self.operation,
            "source": self.source,
            "licence": self.licence,
            "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "environment": dict(self.environment),
        }
        return save_table(path, self.rows, header)


def load_measurements(path: str | Path) -> Measurements:
    """Read what `save` wrote. Raises `InputFileError` on another schema, a changed table, or times that cannot be."""
    header, rows = load_table(path, "measurements", SCHEMA)
    where = header_path(path)
    try:
        return Measurements(
            operation=str(header["operation"]),
            rows=rows,
            source=str(header["source"]),
            licence=str(header["licence"]),
            environment=header.get("environment", {}),
        )
    except KeyError as error:
        raise InputFileError(where, "is missing", f"field {error.args[0]}") from error
    except InputFileError:
        raise
    except UsageError as error:
        raise InputFileError(where, str(error)) from error


def joined(parts: Sequence[Measurements]) -> Measurements:
    """Tables of one operation as one. Sources and licences are listed; environments are kept where they agree."""
    import pandas as pd

    if not parts or len({part.operation for part in parts}) != 1:
        raise UsageError(
            f"only measurements of one operation can be joined, got {[p.operation for p in parts]}"
        )
    shared = {key: value for key, value in parts[0].environment.items()
              if all(part.environment.get(key) == value for part in parts)}  # fmt: skip
    return Measurements(
        parts[0].operation,
        pd.concat([part.rows for part in parts], ignore_index=True),
        "; ".join(dict.fromkeys(part.source for part in parts)),
        "; ".join(dict.fromkeys(part.licence for part in parts)),
        shared,
    )


def operations_of(operation: str, rows: pd.DataFrame) -> Iterator[tuple[NDArray[np.int64], Any]]:
    """Rows of a table as operations over arrays [R']: text and flags are one value a group, sizes are columns."""
    entry = operation_entry(operation)
    columns = [name for name in entry.shape if name in rows.columns]
    fixed = [name for name in columns if rows[name].dtype.kind not in "iuf"]
    sizes = [name for name in columns if name not in fixed]
    if not fixed:
        groups: Iterator[tuple[Any, Any]] = iter([((), np.arange(len(rows)))])
    else:
        groups = iter(rows.groupby(fixed, sort=True, observed=True).indices.items())
    for key, index in groups:
        values = dict(zip(fixed, key if isinstance(key, tuple) else (key,), strict=True))
        arrays = {name: rows[name].to_numpy()[index] for name in sizes}
        values = {
            name: bool(value) if isinstance(value, np.bool_) else value for name, value in values.items()
        }
        yield np.asarray(index, np.int64), entry.operation(**arrays, **values)


def header_path(path: str | Path) -> Path:
    """`P` and `P.toml` name the same header."""
    target = Path(path)
    return target if target.suffix == ".toml" else target.with_name(target.name + ".toml")


def save_table(path: str | Path, rows: pd.DataFrame, header: Mapping[str, Any]) -> Path:
    """Write `rows` and then the header that names them; an older table of the same header goes last."""
    target = header_path(path)
    old = _table_of(target)
    content = io.BytesIO()
    rows.to_parquet(content, index=False, compression="zstd")
    digest = hashlib.sha256(content.getbuffer()).hexdigest()
    table = target.with_name(f"{target.stem}-{digest[:12]}.parquet")
    with written_whole(table) as part:
        part.write_bytes(content.getbuffer())
    text = toml_text({**header, "table": {"file": table.name, "sha256": digest, "rows": len(rows)}})
    with written_whole(target) as part:
        part.write_text(text, encoding="utf-8")
    if old is not None and old != table:
        old.unlink(missing_ok=True)
    return target


def load_table(path: str | Path, kind: str, schema: int) -> tuple[dict[str, Any], pd.DataFrame]:
    """(header, rows). Raises `InputFileError` naming file, field and what would be right."""
    import pandas as pd

    where = existing_file(header_path(path))
    header = read_header(where, kind, schema)
    table = header.get("table")
    if not isinstance(table, dict) or not {"file", "sha256"} <= table.keys():
        raise InputFileError(where, "must name the table and its SHA-256", "field table")
    name = str(table["file"])
    if Path(name).name != name:
        raise InputFileError(where, f"must be a file beside the header, got {name!r}", "field table.file")
    file = existing_file(where.with_name(name))
    if sha256_of(file) != table["sha256"]:
        raise InputFileError(
            file, f"its SHA-256 is not the one that {where.name} states: it was changed or is torn"
        )
    try:
        return header, pd.read_parquet(file)
    except (OSError, ValueError) as error:
        raise InputFileError(file, f"is no readable Parquet table: {error}") from error


def read_header(where: Path, kind: str, schema: int) -> dict[str, Any]:
    """The TOML header of that kind and schema."""
    try:
        header = tomllib.loads(where.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputFileError(where, f"is not TOML: {error}") from error
    if header.get("kind") != kind:
        raise InputFileError(where, f"must be {kind!r}, got {header.get('kind')!r}", "field kind")
    if header.get("schema") != schema:
        raise InputFileError(
            where,
            f"is {header.get('schema')!r}; this version reads {schema}: calibrate again",
            "field schema",
        )
    return header


def toml_text(table: Mapping[str, Any]) -> str:
    """A header as TOML: scalars and lists first, then one section per table, nested ones dotted. None is left out."""
    return "\n".join(_toml_lines(table, ())) + "\n"


def _toml_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    plain = {
        key: value for key, value in table.items() if not isinstance(value, Mapping) and value is not None
    }
    if path and (plain or not table):
        yield "\n[" + ".".join(_key(part) for part in path) + "]"
    for key, value in plain.items():
        yield f"{_key(key)} = {_toml_value(value)}"
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _toml_lines(value, (*path, str(key)))


def _key(key: object) -> str:
    text = str(key)
    bare = text.isascii() and bool(text) and all(c.isalnum() or c in "-_" for c in text)
    return text if bare else json.dumps(text, ensure_ascii=True)


def _toml_value(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if np.isfinite(value) else str(value).replace("infinity", "inf")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(one) for one in value) + "]"
    return json.dumps(str(value), ensure_ascii=True)  # JSON's escapes are TOML's


def _table_of(header: Path) -> Path | None:
    """The table that an existing header names, if it can be told."""
    try:
        name = str(tomllib.loads(header.read_text(encoding="utf-8"))["table"]["file"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return header.with_name(name) if Path(name).name == name and name.endswith(".parquet") else None
