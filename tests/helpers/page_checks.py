"""What every page of ours must pass in headless Chromium: no complaint, no network, nothing cut, nothing too small to read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
CUT = """() => [...document.querySelectorAll(".js-plotly-plot")].flatMap((plot) => {
  const around = plot.getBoundingClientRect();
  return [...plot.querySelectorAll("svg text")].filter((text) => {
    const box = text.getBoundingClientRect();
    const seen = box.width > 2 && text.textContent.trim() && getComputedStyle(text).visibility !== "hidden";
    return seen && (box.left < around.left - 1 || box.right > around.right + 1 || box.bottom > around.bottom + 1);
  }).map((text) => `${plot.id}: ${text.textContent}`);
})"""
SMALL = """() => [...document.querySelectorAll("main *, .js-plotly-plot svg text")].filter((one) => {
  const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const shown = one.getBoundingClientRect().width > 2 && !["SCRIPT", "STYLE"].includes(one.tagName);
  return own && shown && !one.closest(".axis-extent") && parseFloat(getComputedStyle(one).fontSize) < 10.5;
}).map((one) => one.textContent)"""


class OpenedPage:
    """A page in a window of some width, with what it complained of and what it asked the network for."""

    def __init__(self, browser: Any, file: Path, width: int) -> None:
        self.page = browser.new_page(viewport={"width": width, "height": 1000})
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())

    def passes(self, figures: int | None = None) -> None:
        """Everything that every page must pass, once its figures are drawn; `figures`: exactly so many."""
        self.page.wait_for_selector("body[data-drawn]")
        self.page.wait_for_timeout(500)
        assert self.complaints == []
        assert self.outside() == []
        count = self.page.locator(".js-plotly-plot").count()
        assert self.page.locator(".js-plotly-plot .main-svg:first-child").count() == count
        assert figures is None or count == figures
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.page.viewport_size["width"]
        assert self.page.evaluate(CUT) == []
        assert self.page.evaluate(SMALL) == []

    def outside(self) -> list[str]:
        """Addresses that are not the file itself."""
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
