"""From figures and values to one page of HTML that opens offline, and to disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import UsageError
from ..files import written_whole
from .embed import embedded_json, escaped_for_script
from .palette import MARKS, SVG_DASHES

TEMPLATES = Path(__file__).parent / "templates"


class Figure(NamedTuple):
    """One place on the page; with several choices (capacities, runs) a list above it says which is drawn."""

    key: str
    title: str
    choices: tuple[str, ...]
    figures: tuple[Any, ...]


def rendered(template: str, sections: Mapping[str, tuple[Figure, ...]], data: Any = None, **values: Any) -> str:
    """The page as text: Plotly embedded once, figures and data as escaped JSON, everything else autoescaped."""
    import jinja2
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    drawn = ",".join(
        f'"{figure.key}":[{",".join(one.to_json() for one in figure.figures)}]'
        for figures in sections.values()
        for figure in figures
    )
    return environment.get_template(template).render(
        sections=sections,
        marks=MARKS,
        dashes=SVG_DASHES,
        plotly_js=Markup(get_plotlyjs()),
        figures_json=Markup(escaped_for_script(f"{{{drawn}}}")),
        data_json=Markup(embedded_json(data)),
        **values,
    )


def write_html(html: str, path: str | Path) -> Path:
    """Write the page whole. Raises `UsageError` for a directory, or `RunError` on a full disk."""
    target = Path(path)
    if target.is_dir():
        raise UsageError(
            f"{target} is a directory; give the report a file name, such as {target / 'report.html'}"
        )
    with written_whole(target) as part:
        # File names may hold bytes that are no text (lone surrogates); they are shown, not a reason to fail.
        part.write_text(html, encoding="utf-8", errors="backslashreplace")
    return target
