"""Floor 5: figures and the offline HTML page.

Each figure is a pair of functions: `*_info()` gathers plain data, `draw_*()` draws it with Plotly.
Importing this package loads none of them; `report` does, when it is called.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .page import Result

__all__ = ["report", "write_chrome_trace"]


def report(result_or_dir: Result | str | Path, path: str | Path) -> Path:
    """Write a result, or the run that was saved in a directory, as one offline HTML page; returns its path.

    Raises `UsageError` (also for a directory that holds no run) and `RunError` where it cannot be written.
    """
    from .page import write_page

    if isinstance(result_or_dir, (str, Path)):
        from ..workbench.run_store import load_run

        return write_page(load_run(result_or_dir), path)
    return write_page(result_or_dir, path)


def write_chrome_trace(events: Any, path: str | Path) -> Path:
    """Write timeline events (times in ns) as Chrome trace JSON, which opens in Perfetto; returns the path."""
    from .chrome_trace import write_chrome_trace as write

    return write(events, path)
