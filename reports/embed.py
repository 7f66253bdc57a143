"""Putting foreign text into a page: names come from files and must show as they are, never run.

Three places need three escapes. HTML is escaped by Jinja; what is here is for JSON inside a script block and
for the texts that Plotly draws, which understand a small HTML of their own.
"""

from __future__ import annotations

import html
import json
import math
import textwrap
from collections.abc import Mapping
from typing import Any

_SCRIPT_ESCAPES = {
    "<": "\\u003c",  # every one, not only those of a lower-case </script>: <!-- opens a script block too
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def plain(value: Any) -> Any:
    """`value` with numpy scalars and arrays as Python values, and NaN and infinities as None (unknown)."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist") and not isinstance(value, (str, bytes)):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def embedded_json(value: Any) -> str:
    """JSON for inside a `<script>` element: parsed it equals `value`, and nothing in it ends the block."""
    text = json.dumps(plain(value), allow_nan=False, separators=(",", ":"))
    return escaped_for_script(text)


def escaped_for_script(json_text: str) -> str:
    """A JSON text with every character that HTML could act upon written as a JSON escape.

    These characters occur in JSON only inside strings, so replacing them everywhere keeps the meaning.
    """
    for character, escape in _SCRIPT_ESCAPES.items():
        json_text = json_text.replace(character, escape)
    return json_text


def literal(text: str, width: int | None = None) -> str:
    """`text` for a Plotly label, shown character by character; broken into lines of `width` where given.

    Plotly reads `<b>`, `<br>` and `&lt;` in labels. Long words are broken, never cut.
    """
    lines = [text]
    if width is not None:
        lines = textwrap.wrap(text, width, break_on_hyphens=False, drop_whitespace=True) or [text]
    return "<br>".join(html.escape(line, quote=False) for line in lines)
