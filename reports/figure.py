"""What every figure has in common: type, colours, margins, and how bars and their names are laid out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .embed import literal
from .palette import GRID, TEXT

NAME_WIDTH = 28
"""Characters of a name beside a bar before it goes on in the next line: names are broken, never cut."""
_LINE, _GAP = 15, 9
"""Pixels of a line of a name, and between two bars."""

_AXIS = {
    "automargin": True,
    "gridcolor": GRID,
    "linecolor": "#888888",
    "showline": True,
    "zeroline": False,
    "ticks": "outside",
    "tickcolor": "#888888",
    "title": {"standoff": 8},
}


def base_layout(height: int, left: int = 8) -> dict[str, Any]:
    """A light figure without a title (the page has it) and without a legend (the page has that too)."""
    return {
        "template": "none",
        "height": height,
        "margin": {"l": left, "r": 16, "t": 16, "b": 48},
        "paper_bgcolor": "#ffffff",
        "plot_bgcolor": "#ffffff",
        "font": {"family": "system-ui, sans-serif", "size": 13, "color": TEXT},
        "showlegend": False,
        "hovermode": "closest",
        "hoverlabel": {"namelength": -1, "align": "left", "bgcolor": "#ffffff", "font": {"color": TEXT}},
        "xaxis": dict(_AXIS),
        "yaxis": dict(_AXIS),
    }


def bar_layout(names: Sequence[str], extra: int = 70) -> dict[str, Any]:
    """Bars (or heat-map rows) at 0, 1, 2, … from the top, with their names; `extra` pixels for the rest."""
    labels = [literal(name, NAME_WIDTH) for name in names]
    most_lines = max(label.count("<br>") + 1 for label in labels)
    layout = base_layout(height=len(names) * (most_lines * _LINE + _GAP) + extra)
    layout["yaxis"] |= {
        "range": [len(names) - 0.5, -0.5],
        "tickvals": list(range(len(names))),
        "ticktext": labels,
        "tickfont": {"size": 12},
        "showgrid": False,
        "ticks": "",
    }
    return layout


def legend_above() -> dict[str, Any]:
    """A legend in a row over the figure, where it covers nothing."""
    return {
        "orientation": "h",
        "traceorder": "normal",
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "bottom",
        "yref": "paper",
    }
