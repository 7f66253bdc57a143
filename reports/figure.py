"""What every figure has in common: type, colours, margins, and how bars and their names are laid out."""

from __future__ import annotations

from typing import Any

from .palette import GRID, TEXT

BAR_HEIGHT = 24
"""Pixels a bar or a heat-map row takes."""

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


def bar_layout(count: int, extra: int = 70) -> dict[str, Any]:
    """A figure of `count` horizontal bars at 0, 1, 2, … from the top, `extra` pixels for axis and legend."""
    layout = base_layout(height=count * BAR_HEIGHT + extra)
    layout["yaxis"] |= {"range": [count - 0.5, -0.5], "showgrid": False, "ticks": ""}
    return layout


def legend_above() -> dict[str, Any]:
    """A legend in a row over the figure, where it covers nothing."""
    return {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "yref": "paper"}
