"""The journal of a calibration: one line a visit, on disk before the next one starts, so that nothing measured is lost.

The first line says for which machine and settings it is; a resumed run goes on only if they are the same. A torn last
line, which is what an interruption leaves, is dropped.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from ..errors import InputFileError, RunError, UsageError

SCHEMA = 1
_KIND = "calibration journal"


@dataclass(frozen=True, slots=True)
class Visit:
    """One case measured once: raw samples in seconds per call; or why it could not be."""

    key: str
    round: int
    kernel: str
    samples_s: tuple[float, ...]
    first_call_s: float | None = None
    warnings: tuple[str, ...] = ()
    telemetry: Mapping[str, float] | None = None
    """What the device's driver told after it: clocks, temperature, power."""
    skipped: str | None = None
    """Why the case has no time: it does not fit into memory. There are no samples then."""

    def to_line(self) -> str:
        row: dict[str, Any] = {"key": self.key, "round": self.round, "kernel": self.kernel}
        if self.skipped is not None:
            return json.dumps({**row, "skipped": self.skipped}, ensure_ascii=False)
        row["samples_s"] = self.samples_s
        if self.first_call_s is not None:
            row["first_call_s"] = self.first_call_s
        if self.warnings:
            row["warnings"] = self.warnings
        if self.telemetry:
            row["telemetry"] = dict(self.telemetry)
        return json.dumps(row, ensure_ascii=False, allow_nan=False)


@dataclass
class Journal:
    """An open journal. Use as a context; `visits` are those found and those appended."""

    path: Path
    visits: list[Visit] = field(default_factory=list)
    _stream: TextIO | None = None

    def append(self, visit: Visit) -> None:
        """Write one line and wait until the disk has it. Raises `RunError` where it cannot; what was written stays."""
        if self._stream is None:
            raise RuntimeError("the journal is closed")
        try:
            self._stream.write(visit.to_line() + "\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise RunError(
                f"cannot write {self.path}: {error.strerror or error}; the {len(self.visits)} visits before this one are "
                "kept, resume when there is room"
            ) from error
        self.visits.append(visit)

    def done(self) -> set[tuple[str, int]]:
        """(case, round) pairs that are there."""
        return {(visit.key, visit.round) for visit in self.visits}

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            try:
                self._stream.close()
            except OSError as failure:  # a full disk may speak up only now
                if error is None:
                    raise RunError(f"cannot write {self.path}: {failure.strerror or failure}") from failure
            self._stream = None


def open_journal(path: str | Path, header: Mapping[str, Any], *, resume: bool) -> Journal:
    """A journal to append to. With `resume` what is there is read, if it was made under the same header.

    Raises `UsageError` where it was not (naming what differs), `InputFileError` for a file that is no journal, `RunError`
    where the disk or the permissions refuse.
    """
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        old = target.read_bytes() if resume and target.exists() else b""
        whole = old[: old.rfind(b"\n") + 1]
        visits = _read(target, whole, header) if whole else []
        stream = target.open("r+" if whole else "w", encoding="utf-8")
        if whole:
            stream.truncate(len(whole))
            stream.seek(0, os.SEEK_END)
        else:
            stream.write(json.dumps({"kind": _KIND, "schema": SCHEMA, **header}, ensure_ascii=False) + "\n")
            stream.flush()
    except OSError as error:
        raise RunError(f"cannot write {target}: {error.strerror or error}") from error
    return Journal(target, visits, stream)


def _read(path: Path, content: bytes, header: Mapping[str, Any]) -> list[Visit]:
    lines = content.decode("utf-8", errors="replace").splitlines()
    there = _object(path, lines[0], 1)
    if there.get("kind") != _KIND or there.get("schema") != SCHEMA:
        raise InputFileError(
            path,
            f"is no calibration journal of schema {SCHEMA}: {there.get('kind')!r}, {there.get('schema')!r}",
            "line 1",
        )
    wanted = json.loads(json.dumps(dict(header)))
    differing = [
        f"{name}: {there.get(name, 'absent')} there, {wanted.get(name, 'absent')} now"
        for name in sorted((wanted.keys() | there.keys()) - {"kind", "schema"})
        if there.get(name) != wanted.get(name)
    ]
    if differing:
        raise UsageError(
            f"{path} was measured otherwise ({'; '.join(differing)}): measure anew without resuming, or write elsewhere"
        )
    return [
        _visit(path, _object(path, line, number), number) for number, line in enumerate(lines[1:], start=2)
    ]


def _object(path: Path, line: str, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputFileError(path, f"is not JSON: {error}", f"line {number}") from error
    if not isinstance(row, dict):
        raise InputFileError(path, f"must be an object, got {type(row).__name__}", f"line {number}")
    return row


def _visit(path: Path, row: dict[str, Any], number: int) -> Visit:
    skipped, samples = row.get("skipped"), row.get("samples_s")
    good = (isinstance(skipped, str) and samples is None) or (
        isinstance(samples, list)
        and samples
        and all(isinstance(s, int | float) and 0 < s < 1e9 for s in samples)
    )
    if not good:
        raise InputFileError(
            path, f"samples_s must be seconds above 0, got {samples!r}", f"line {number}, {row.get('key')!r}"
        )
    try:
        return Visit(
            str(row["key"]), int(row["round"]), str(row["kernel"]), tuple(map(float, samples or ())),
            row.get("first_call_s"), tuple(row.get("warnings", ())), row.get("telemetry"), skipped,
        )  # fmt: skip
    except (KeyError, ValueError, TypeError) as error:
        raise InputFileError(path, f"lacks or misstates {error}", f"line {number}") from error
