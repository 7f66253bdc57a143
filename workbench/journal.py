"""An append-only journal of finished scenarios. It survives being killed at any byte.

A line is eight hex digits (CRC-32 of the rest), a space, JSON, and a line end. The first says which study this is. What
a kill or a full disk leaves unfinished at the end is dropped when the journal is opened again; damage anywhere else is
an error, because it is no interruption.
"""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from ..errors import InputFileError, RunError

_SYNC_EVERY_S = 1.0
"""A power cut loses about this much work at most; a killed process loses nothing that was written."""


def _line(value: Mapping[str, Any]) -> bytes:
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parsed(line: bytes) -> dict[str, Any] | None:
    """What a line holds, None where it is torn."""
    if len(line) < 11 or line[8:9] != b" " or not line.endswith(b"\n"):
        return None
    try:
        if int(line[:8], 16) != zlib.crc32(line[9:-1]):
            return None
        value = json.loads(line[9:-1])
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@dataclass(slots=True)
class Contents:
    """What a journal holds, without its rows: only where each of them stands."""

    header: dict[str, Any] | None = None
    places: dict[str, int] = field(default_factory=dict)
    """Scenario hash → byte offset of its line."""
    end: int = 0
    """Bytes that are whole; what follows is torn."""


def read_journal(path: str | Path) -> Contents:
    """Read a journal through once. Raises `InputFileError` naming the line where it is damaged before its end."""
    found, offset, torn = Contents(), 0, 0
    source = Path(path)
    if not source.exists():
        return found
    with source.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            value = _parsed(line)
            if value is None:
                torn = torn or number
            elif torn:
                raise InputFileError(
                    source, "is damaged, and later lines are whole: no interruption does this", f"line {torn}"
                )
            elif number == 1:
                found.header = value
            else:
                found.places.setdefault(str(value.get("scenario")), offset)
            offset += len(line)
            if not torn:
                found.end = offset
    return found


def rows_at(path: str | Path, offsets: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The rows at these places, one at a time."""
    with Path(path).open("rb") as stream:
        for offset in offsets:
            stream.seek(offset)
            value = _parsed(stream.readline())
            if value is None:
                raise InputFileError(path, "changed while it was read", f"byte {offset}")
            yield value


class Journal:
    """Appends rows. Use as a context manager; `places` grows with what is written."""

    def __init__(self, path: str | Path, header: Mapping[str, Any], contents: Contents) -> None:
        self.path, self._header = Path(path), header
        self.places, self._end = contents.places, contents.end
        self._stream: BinaryIO | None = None
        self._synced_at = 0.0

    def __enter__(self) -> Journal:
        try:
            self._stream = self.path.open("r+b" if self.path.exists() else "w+b", buffering=0)
            self._stream.truncate(self._end)  # drops what a kill left unfinished
            self._stream.seek(self._end)
            if self._end == 0:
                self._write(_line(self._header))
        except OSError as error:
            raise RunError(f"cannot write {self.path}: {error.strerror or error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            try:
                os.fsync(self._stream.fileno())
            except OSError as failure:
                if error is None:
                    raise RunError(f"cannot write {self.path}: {failure.strerror or failure}") from failure
            finally:
                self._stream.close()

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add finished rows, each with its `scenario` hash. A hash that is there already is not written again."""
        lines, places, offset = [], {}, self._end
        for row in rows:
            name = str(row["scenario"])
            if name in self.places or name in places:
                continue
            line = _line(row)
            places[name] = offset
            lines.append(line)
            offset += len(line)
        try:
            self._write(b"".join(lines))
        except OSError as error:
            raise RunError(
                f"cannot write {self.path}: {error.strerror or error}; {len(self.places)} scenarios are kept, "
                "and --resume goes on from there"
            ) from error
        self.places.update(places)

    def _write(self, data: bytes) -> None:
        assert self._stream is not None, "a journal is used as a context manager"
        try:
            left = memoryview(data)
            while left:
                left = left[self._stream.write(left) :]
            if time.monotonic() - self._synced_at > _SYNC_EVERY_S:
                os.fsync(self._stream.fileno())
                self._synced_at = time.monotonic()
        except OSError:
            self._stream.truncate(self._end)  # a full disk: half a line is worth nothing
            self._stream.seek(self._end)
            raise
        self._end += len(data)
