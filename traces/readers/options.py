"""What a caller may tell a reader."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReadOptions:
    num_experts: int | None = None
    """Routed experts per layer, for files that do not say; a file that says otherwise is an error."""
    lenient: bool = False
    """Skip rows that cannot be read and count them in the notes, instead of refusing the file."""
