"""The traces that come with the product (`traces/data/`), so that a first replay needs no download."""

from __future__ import annotations

from pathlib import Path

from ..errors import unknown_name

FOLDER = Path(__file__).parent / "data"


def bundled_trace_names() -> list[str]:
    """Names that `bundled_trace_path` knows."""
    return sorted(path.stem for path in FOLDER.glob("*.safetensors"))


def bundled_trace_path(name: str = "small-olmoe-stdlib") -> Path:
    """Where the trace of this name is; its card (`<name>.md`) lies beside it. `UsageError` for an unknown name."""
    path = FOLDER / f"{name}.safetensors"
    if name not in bundled_trace_names():
        raise unknown_name("bundled trace", name, bundled_trace_names())
    return path
