"""A replay's run directory: written whole, read back without running anything again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputFileError, RunError
from ..files import existing_file, written_whole

if TYPE_CHECKING:
    import pandas as pd

    from .result import ReplayResult

SCHEMA = 1
_KIND = "replay"


def save_run(result: ReplayResult, folder: str | Path) -> Path:
    """Write `run.json`, `rows.parquet`, `layers.parquet`, `reporting.json` and, if there is one, `timeline.json`.

    `run.json` comes last: a directory without it is no finished run. Raises `RunError` where writing fails.
    """
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise RunError(f"cannot write {target}: it is a file, expected a directory")
    try:
        (target / "run.json").unlink(missing_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}") from error
    _write_table(result.rows, target / "rows.parquet")
    _write_table(result.layers, target / "layers.parquet")
    _write_json(result.reporting, target / "reporting.json")
    if result.timeline is not None:
        _write_json(result.timeline, target / "timeline.json")
    else:
        (target / "timeline.json").unlink(missing_ok=True)
    _write_json({"schema": SCHEMA, "kind": _KIND, **result.run}, target / "run.json")
    return target


def load_run(folder: str | Path) -> ReplayResult:
    """Read a run directory. Raises `InputFileError` naming the file that is missing, torn or of another schema."""
    from .result import ReplayResult

    source = Path(folder)
    if not source.is_dir():
        raise InputFileError(
            source, "no such directory" if not source.exists() else "is a file, expected a run directory"
        )
    if not (source / "run.json").exists():
        raise InputFileError(source, "holds no run.json: not a run directory, or its run did not finish")
    run = _read_json(source / "run.json")
    if run.get("schema") != SCHEMA or run.get("kind") != _KIND:
        raise InputFileError(
            source / "run.json",
            f"schema {run.get('schema')!r} of kind {run.get('kind')!r}, expected schema {SCHEMA} of kind {_KIND!r}",
        )
    missing = {"trace", "model", "hardware", "options", "costs", "warnings", "sentence"} - set(run)
    if missing:
        raise InputFileError(source / "run.json", "is missing", where=", ".join(sorted(missing)))
    timeline = _read_json(source / "timeline.json") if (source / "timeline.json").exists() else None
    return ReplayResult(
        rows=_read_table(source / "rows.parquet"),
        layers=_read_table(source / "layers.parquet"),
        reporting=_read_json(source / "reporting.json"),
        run={key: value for key, value in run.items() if key not in ("schema", "kind")},
        timeline=timeline,
    )


def _write_table(table: pd.DataFrame, path: Path) -> None:
    with written_whole(path) as part:
        table.to_parquet(part, index=False)


def _write_json(value: Any, path: Path) -> None:
    with written_whole(path) as part:
        part.write_text(json.dumps(value, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(existing_file(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputFileError(path, f"is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InputFileError(path, f"expected a JSON object, got {type(value).__name__}")
    return value


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd
    import pyarrow

    try:
        return pd.read_parquet(existing_file(path))
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise InputFileError(path, f"is not readable Parquet: {error}") from error
