"""Which colour, mark and dash a policy has: the same in all figures of a page, distinct without colour.

Colours are dark enough to be lines on white (contrast of 3 to 1 or more) and stay apart for people with
protanopia and deuteranopia; where more policies than colours ran, the mark tells them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TEXT = "#1a1a1a"
GRID = "#dddddd"

COLOURS = ("#e65c00", "#183090", "#00a060", "#900048", "#187890", "#604800", "#e030c8", "#4040f0")
# Mark → its outline in a box of 12 × 12, for the legend beside the figures.
MARKS = {
    "circle": "M6 1a5 5 0 1 0 0.01 0z",
    "square": "M1.5 1.5h9v9h-9z",
    "diamond": "M6 0L12 6L6 12L0 6z",
    "triangle-up": "M6 0.5L11.8 11H0.2z",
    "triangle-down": "M6 11.5L11.8 1H0.2z",
    "x": "M2.5 0L6 3.5L9.5 0L12 2.5L8.5 6L12 9.5L9.5 12L6 8.5L2.5 12L0 9.5L3.5 6L0 2.5z",
    "cross": "M4 0h4v4h4v4H8v4H4V8H0V4h4z",
}
# Bounds are no policies: grey to black, no marks, never a full line.
BOUND_COLOURS = ("#8a8a8a", "#8a8a8a", "#000000", "#555555")
BOUND_DASHES = ("dot", "dash", "longdash", "dashdot")
SVG_DASHES = {"solid": "", "dot": "2 3", "dash": "6 4", "longdash": "10 4", "dashdot": "7 3 2 3"}

MISS_KINDS = ("compulsory", "capacity", "collision", "late")
MISS_COLOURS = {"compulsory": "#9a9a9a", "capacity": "#0072b2", "collision": "#d55e00", "late": "#e8c33d"}


class Look(NamedTuple):
    """How one policy or bound is drawn."""

    colour: str
    dash: str
    mark: str | None
    """A Plotly marker symbol; None for bounds, which have no marks."""


def looks(policies: Sequence[str], bounds: Sequence[str]) -> dict[str, Look]:
    """Name → look. No two share one, up to 56 policies and 4 bounds."""
    marks = list(MARKS)
    found = {}
    for index, name in enumerate(policies):
        mark = marks[(index + index // len(COLOURS)) % len(marks)]
        found[name] = Look(COLOURS[index % len(COLOURS)], "solid", mark)
    for index, name in enumerate(bounds):
        found[name] = Look(
            BOUND_COLOURS[index % len(BOUND_COLOURS)], BOUND_DASHES[index % len(BOUND_DASHES)], None
        )
    return found
