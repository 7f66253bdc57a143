"""What can go wrong in a user's hands. One small tree; the command line turns it into exit codes.

    WorkbenchError
      UsageError       exit 2: the request itself is wrong (a flag, a field, a file's content)
        InputFileError   … and it is a file that is wrong: says which, and where in it
      RunError         exit 1: the request was fine, the run failed

Broken invariants of our own raise RuntimeError instead: they are our fault, never the user's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class WorkbenchError(Exception):
    """Base of every error a user can cause or meet."""

    exit_code = 1


class UsageError(WorkbenchError, ValueError):
    """The request is wrong: the message names the field, the value, and what would be right."""

    exit_code = 2


class InputFileError(UsageError):
    """A file's content is wrong. `where` is a line, row, column, tensor or field inside it."""

    def __init__(self, path: str | Path, what: str, where: str | None = None) -> None:
        self.path, self.what, self.where = Path(path), what, where
        place = f"{path}: {where}" if where else f"{path}"
        super().__init__(f"{place}: {what}")


class RunError(WorkbenchError):
    """The request was fine but running it failed (disk full, no permission, interrupted)."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is not in a registry or schema, naming the nearest known one."""
    options = sorted(known)
    near = difflib.get_close_matches(name, options, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return UsageError(f"unknown {kind} {name!r}; {hint}known: {', '.join(options)}")
