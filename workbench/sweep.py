"""The study `sweep`: every scenario of a study file once, on all cores or a cluster, resumable at any moment.

study ─► scenarios, streamed ─► not yet in the journal? ─► executor ─► journal ─► table (rows.parquet)
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputFileError, RunError, UsageError
from ..files import existing_file, written_whole
from .executors import Rows, run_here, run_in_processes
from .journal import Journal, read_journal, rows_at
from .study import Study, load_study
from .sweep_facts import described
from .sweep_inputs import Inputs, check_unchanged, folder_of, prepare_inputs, study_facts
from .sweep_table import read_table, write_layers, write_sequences, write_table
from .sweep_worker import Task

if TYPE_CHECKING:
    import pandas as pd

_KIND, _SCHEMA = "sweep", 1
_ERRORS_TOLD = 20  # the most frequent ones in run.json; every one stands in its row
Progress = Callable[[int, int, str], None]


@dataclass(slots=True)
class SweepResult:
    """A finished sweep in its folder."""

    folder: Path
    run: dict[str, Any]
    """Study, inputs with hashes and facts, version, counts: what `run.json` holds."""
    seconds: float | None = None
    """How long this call took; None for a sweep that was read back."""
    ran: int = 0
    """Scenarios that this call ran; the others stood in the journal."""
    _rows: pd.DataFrame | None = field(default=None, repr=False)
    _sequences: pd.DataFrame | None = field(default=None, repr=False)

    @property
    def rows(self) -> pd.DataFrame:
        """One tidy row a scenario, in the study's order; unknown values are missing."""
        if self._rows is None:
            self._rows = read_table(self.folder / "rows.parquet")
        return self._rows

    @property
    def sequences(self) -> pd.DataFrame:
        """Times, hits and accesses of each scenario's sequences."""
        if self._sequences is None:
            self._sequences = read_table(self.folder / "sequences.parquet")
        return self._sequences

    def layers_of(self, scenarios: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Scenario → its lists by layer; empty for a sweep of a version that kept none."""
        path = self.folder / "layers.parquet"
        if not path.exists():
            return {}
        frame = read_table(path)
        frame = frame[frame["scenario"].isin(scenarios) & frame["layer_ids"].notna()]
        return {row["scenario"]: {str(key): row[key] for key in row} for row in frame.to_dict("records")}

    def sentence(self) -> str:
        counts = self.run["counts"]
        text = f"{counts['scenarios']:,} scenarios"
        if counts["failed"]:
            text += f", {counts['failed']:,} of them failed (each is a row with its error)"
        if counts["duplicates"]:
            text += f"; {counts['duplicates']:,} duplicates were run once"
        if self.seconds and self.ran:
            text += f"; {self.ran:,} ran in {self.seconds:.1f} s, {self.ran / self.seconds:,.0f} a second"
        return text + "."


class _Stream:
    """Goes through a study's scenarios once, and remembers their order, their number and what is left to run."""

    def __init__(self, study: Study, inputs: Inputs, done: dict[str, int]) -> None:
        self._study, self._inputs, self._done = study, inputs, done
        self.order: list[str] = []
        self.duplicates = 0
        self.known = False
        """Whether the study has been gone through to its end, so that the number of scenarios is known."""

    def __iter__(self) -> Iterator[Task]:
        seen: set[str] = set()
        for point in self._study.scenarios():
            resolved = self._inputs.resolved(point)
            name = self._inputs.hash_of(resolved)
            if name in seen:
                self.duplicates += 1
                continue
            seen.add(name)
            self.order.append(name)
            if name not in self._done:
                yield Task(name, resolved.model_dump())
        self.known = True

    def total(self) -> int:
        return len(self.order) if self.known else self._study.most() - self.duplicates


def sweep(
    study: str | Path,
    *,
    out: str | Path,
    resume: bool = False,
    workers: int | None = None,
    cluster: str | None = None,
    progress: Progress | None = None,
) -> SweepResult:
    """Run every scenario of a study file into the folder `out`, and return its table.

    `workers` processes of one thread each (None: as many as there are cores; 1: in this process), or the Dask
    scheduler at `cluster`. With `resume` the scenarios that a journal in `out` holds are not run again; the table is the
    same, row for row, as that of an uninterrupted run. `progress` is told (scenarios done, in all, pace).

    Raises `UsageError` for what cannot be before anything runs, `RunError` where the disk refuses. A scenario that
    fails is a row with its error.
    """
    source, folder = Path(study), Path(out)
    if workers is not None and workers < 1:
        raise UsageError(f"workers must be at least 1, got {workers}")
    plan = load_study(source)
    _check_folder(folder, resume)
    contents = read_journal(folder / "journal.jsonl")
    before = _facts_before(folder) if contents.header is not None else None
    inputs = prepare_inputs(plan, folder_of(source), folder)
    facts = study_facts(plan, inputs)
    if before is not None:
        check_unchanged(before, facts, folder)
    _write_json(
        facts | {"file": source.name, "text": source.read_text(encoding="utf-8-sig")}, folder / "study.json"
    )
    started = time.monotonic()
    stream = _Stream(plan, inputs, contents.places)
    sent = Inputs(inputs.folder, inputs.version, inputs.traces)
    pace = _Pace(len(contents.places), stream, progress)
    with Journal(
        folder / "journal.jsonl", {"kind": _KIND, "schema": _SCHEMA, "study": facts["study"]}, contents
    ) as journal:
        for rows in _executor(sent, iter(stream), workers, cluster):
            journal.append(rows)
            pace.add(len(rows))
    facts["described"] = described(inputs)
    run = _finish(folder, stream, contents.places, plan, facts, source)
    return SweepResult(folder, run, time.monotonic() - started, pace.ran)


def _executor(
    inputs: Inputs, tasks: Iterator[Task], workers: int | None, cluster: str | None
) -> Iterator[Rows]:
    if cluster is not None:
        from .executors_dask import run_on_cluster

        return run_on_cluster(inputs, tasks, cluster)
    cores = len(os.sched_getaffinity(0)) if workers is None else workers
    return run_here(inputs, tasks) if cores == 1 else run_in_processes(inputs, tasks, cores)


class _Pace:
    """Counts what is done and tells the caller, with the rate of this call."""

    def __init__(self, done_before: int, stream: _Stream, progress: Progress | None) -> None:
        self._done, self._stream, self._progress = done_before, stream, progress
        self._started, self.ran = time.monotonic(), 0
        self.add(0)

    def add(self, rows: int) -> None:
        self.ran += rows
        if self._progress is not None:
            rate = self.ran / max(time.monotonic() - self._started, 1e-9)
            self._progress(
                self._done + self.ran,
                self._stream.total(),
                f"{rate:,.0f} scenarios/s" if self.ran else "starting",
            )


def _check_folder(folder: Path, resume: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"cannot write {folder}: it is a file, expected a directory")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write {folder}: {error.strerror or error}") from error
    if (folder / "journal.jsonl").exists() and not resume:
        raise UsageError(
            f"{folder} holds a sweep already: --resume goes on with it, another --out starts afresh"
        )


def _facts_before(folder: Path) -> dict[str, Any]:
    path = existing_file(folder / "study.json")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputFileError(path, f"is not JSON: {error}") from error
    if not isinstance(found, dict) or found.get("schema") != _SCHEMA or found.get("kind") != _KIND:
        raise InputFileError(path, f"is no study of a sweep of schema {_SCHEMA}")
    return found


def _finish(
    folder: Path, stream: _Stream, places: dict[str, int], plan: Study, facts: dict[str, Any], source: Path
) -> dict[str, Any]:
    """Write the tables in the study's order, whatever the order of completion was; `run.json` comes last."""
    journal, offsets = folder / "journal.jsonl", [places[name] for name in stream.order]
    (folder / "run.json").unlink(missing_ok=True)
    errors: Counter[str] = Counter()

    def counted() -> Iterator[dict[str, Any]]:
        for row in rows_at(journal, offsets):
            if row["status"] != "ok":
                errors[row["error"]] += 1
            yield row

    write_table(counted(), folder / "rows.parquet")
    write_sequences(rows_at(journal, offsets), folder / "sequences.parquet")
    write_layers(rows_at(journal, offsets), folder / "layers.parquet")
    counts = {
        "scenarios": len(offsets), "failed": errors.total(), "duplicates": stream.duplicates,
        "errors": dict(sorted(errors.items(), key=lambda item: (-item[1], item[0]))[:_ERRORS_TOLD]),
    }  # fmt: skip
    run = {**facts, "name": plan.name, "about": plan.about, "file": source.name, "counts": counts}
    _write_json(run, folder / "run.json")
    return run


def load_sweep(folder: str | Path) -> SweepResult:
    """Read a finished sweep. Raises `InputFileError` for a folder that holds none, or an unfinished one."""
    source = Path(folder)
    if not source.is_dir():
        raise InputFileError(source, "is a file, expected a folder" if source.exists() else "no such folder")
    if not (source / "run.json").exists():
        unfinished = (source / "journal.jsonl").exists()
        raise InputFileError(
            source,
            "holds an unfinished sweep: workbench sweep --resume goes on with it"
            if unfinished
            else "holds no run.json",
        )
    try:
        run = json.loads((source / "run.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputFileError(source / "run.json", f"is not JSON: {error}") from error
    if not isinstance(run, dict) or run.get("kind") != _KIND or run.get("schema") != _SCHEMA:
        raise InputFileError(source / "run.json", f"is no sweep of schema {_SCHEMA}")
    return SweepResult(source, run)


def _write_json(value: Any, path: Path) -> None:
    with written_whole(path) as part:
        part.write_text(
            json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n", encoding="utf-8"
        )
