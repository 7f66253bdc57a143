"""The report in headless Chromium: it draws, complains of nothing, asks for nothing, and shows names as they are."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import codesign
import numpy as np
import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
EVIL = "a</SCRIPT><b>\"x' & <y>\\"
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    trace = codesign.synthesise(
        num_tokens=60, num_layers=8, num_experts=32, top_k=4, num_sequences=2, prefill_tokens=8, model=EVIL,
        rng=np.random.default_rng(0),
    )  # fmt: skip
    result = codesign.replay(
        trace, model="small-olmoe-stdlib", hardware="rtx-4090", policies=("lru", "lfu"), capacities=("25%", "50%")
    )
    return codesign.report(result, tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.mark.parametrize("width", [1400, 420])
def test_the_page_draws_its_figures_without_an_error_and_without_the_network(
    browser: Any, page_file: Path, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 1000})
    complaints: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    page.wait_for_selector(".js-plotly-plot .main-svg")
    page.wait_for_timeout(500)
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    drawn = page.locator(".js-plotly-plot")
    assert drawn.count() >= 4
    assert all(drawn.nth(i).locator(".main-svg").count() for i in range(drawn.count()))
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_the_table_shows_the_bounds_and_a_hostile_name_is_only_text(browser: Any, page_file: Path) -> None:
    page = browser.new_page()
    page.goto(page_file.as_uri())
    text = page.inner_text("body")
    for word in ("never", "unbounded", "belady-mandatory", "lru", "TPOT"):
        assert word in text
    assert EVIL in page.evaluate("document.body.textContent")
    assert page.locator("body b", has_text="x' &").count() == 0
    page.close()
